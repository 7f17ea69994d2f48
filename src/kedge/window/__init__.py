"""Window algebra: panes, closing, watermarks."""

from kedge.window.panes import Panes

__all__ = ["Panes"]
