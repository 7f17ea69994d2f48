"""What a run delivers to, embedded."""
