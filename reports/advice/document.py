"""The text of docs/signatures.md, made from the catalogue."""

from __future__ import annotations

from textwrap import fill

from ..section_parts.registry import SMALL_INPUT
from .catalogue import CATALOGUE
from .signature import Signature

_HEAD = """# Signatures: what to change

A signature is a pattern on the wire that a setting explains. `kafkatap report --sections advice CAPTURE` names those
that a capture shows, with the time lost, their numbers, and the first packet. The usual report shows the costliest in
its first lines. It reads those marked with * only if the captures have at most {small} MiB in all, as stored. For
larger captures, pipes, `--follow` and `kafkatap live`, use `--sections advice`.

Numbers of *when* are the least. Each is proven by recordings in [samples/advice](../samples/advice/README.md).

| signature | what is wrong | setting |
|---|---|---|
"""
_WIDTH, _SMALL = 120, SMALL_INPUT >> 20


def _row(signature: Signature) -> str:
    star = "*" if signature.on_request else ""
    return f"| [`{signature.id}`](#{signature.id}){star} | {signature.title} | {signature.setting} |\n"


def _part(signature: Signature) -> str:
    lines = [("Wire", signature.wire), ("Change", signature.remedy), ("When", signature.threshold)]
    body = "\n".join(
        fill(f"- **{name}**: {text}", _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for name, text in lines
    )
    return f"\n## {signature.id}\n{body}\n"


def document() -> str:
    """The page: a table of all signatures, then each with its threshold."""
    return _HEAD.replace("{small}", str(_SMALL)) + "".join(map(_row, CATALOGUE)) + "".join(map(_part, CATALOGUE))
