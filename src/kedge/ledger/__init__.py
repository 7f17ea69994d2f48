"""Dense commit records, claims of epochs, and the floor."""
