"""A stream at a glance, as a notebook shows it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kedge.streams.handle import Stream


def html(stream: Stream) -> str:
    """Its columns, and the rows of each partition."""
    columns = ", ".join(f"{escape(field.name)} <i>{escape(str(field.type))}</i>" for field in stream.schema)
    spans = zip(stream.begins(), stream.ends(), strict=True)
    rows = "".join(
        f"<tr><td>{p}</td><td>{begin:,}</td><td>{end:,}</td></tr>" for p, (begin, end) in enumerate(spans)
    )
    return (
        f"<b>{escape(repr(stream))}</b><br>{columns}"
        f"<table><tr><th>partition</th><th>first offset</th><th>end</th></tr>{rows}</table>"
    )
