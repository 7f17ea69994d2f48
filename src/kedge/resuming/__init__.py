"""Which intermediates of a query to save: pure functions on graphs."""
