"""What a run reads from, embedded."""
