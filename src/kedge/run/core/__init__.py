"""The batch protocol: events in, actions out. Pure."""
