"""Column codecs, one file each; statistics; the chooser."""
