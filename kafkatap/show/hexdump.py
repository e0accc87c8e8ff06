"""The bytes of a frame: offset, hexadecimal and ASCII, sixteen a line. Bytes that the tree hides are masked; a long
range of them becomes one line.

Secrets and payload are hidden, and so are bytes without a layout, which may be either.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkatap.dissector.tree import node as n
from kafkatap.dissector.tree.node import Node

from .lines import Span

_WIDTH = 16
_FAINT, _MASKED = "dim", "dim"
_MASKS = {n.HIDDEN, n.RAW}


def masked_ranges(node: Node, records: bool = False) -> list[tuple[int, int]]:
    """The (start, end) of hidden bytes, ascending. With `records`, payload is not hidden."""
    if node.kind in _MASKS:
        if records and node.type == "records":
            return []
        return [(node.offset, node.end)]
    if node.kind == n.RECORDS and not node.children and not records:
        return [(node.offset, node.end)]
    return [found for child in node.children for found in masked_ranges(child, records)]


def hexdump(
    frame: bytes, node: Node | None = None, records: bool = False, secrets: bool = False
) -> Iterator[list[Span]]:
    """The lines of a frame. Without its tree (`node`) everything behind the size field is masked, unless `secrets`."""
    if secrets:
        ranges = []
    elif node is None:
        ranges = [(4, len(frame))]
    else:
        ranges = masked_ranges(node, records)
    open_ = bytearray(b"\x01") * len(frame)
    for start, end in ranges:
        end = min(end, len(frame))
        if end > start:
            open_[start:end] = bytes(end - start)
    at = 0
    while at < len(frame):
        end = _end_of_masked(open_, at)
        if end - at > 2 * _WIDTH:
            yield [(f"{at:08x}  ", _FAINT), (f"{end - at:,} bytes hidden", _MASKED)]
            at = end
            continue
        yield _line(frame[at : at + _WIDTH], open_[at : at + _WIDTH], at)
        at += _WIDTH


def _end_of_masked(open_: bytearray, at: int) -> int:
    """The end of the lines from `at` on that are wholly hidden."""
    shown = open_.find(1, at)
    return len(open_) if shown < 0 else shown - shown % _WIDTH


def _line(raw: bytes, shown: bytearray, at: int) -> list[Span]:
    cells = [f"{byte:02x}" if show else "**" for byte, show in zip(raw, shown, strict=True)]
    cells += ["  "] * (_WIDTH - len(cells))
    half = _WIDTH // 2
    left, right = " ".join(cells[:half]), " ".join(cells[half:])
    text = "".join(
        "*" if not show else chr(byte) if 32 <= byte < 127 else "." for byte, show in zip(raw, shown, strict=True)
    )
    return [(f"{at:08x}  ", _FAINT), (f"{left}  {right}  ", ""), (text, _FAINT)]
