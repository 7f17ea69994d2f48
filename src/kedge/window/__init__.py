"""Window algebra: panes, closing, watermarks."""
