"""The text of docs/signatures.md, made from the catalogue."""

from __future__ import annotations

from textwrap import fill

from .catalogue import CATALOGUE
from .signature import Signature

_HEAD = """# Signatures: what to change

A signature is a pattern on the wire that a setting explains. The section `advice` names those that a capture shows,
with the time that they cost, their numbers, and the first packet (`kafkatap report --sections advice CAPTURE`). The
usual report reads most of them too, and shows the costliest in its first lines. Those marked with * need more than the
usual report reads: ask for them with `--sections advice`.

Each is proven by recordings of real brokers and clients in [samples/advice](../samples/advice/README.md): named where
the setting is wrong, silent where it is right. Where evidence is missing, such as packets of the other end, there is no
finding.

This page is made from the catalogue (`reports/advice/catalogue.py`).

| signature | what is wrong | setting |
|---|---|---|
"""
_WIDTH = 120


def _row(signature: Signature) -> str:
    star = "*" if signature.on_request else ""
    return f"| [`{signature.id}`](#{signature.id}){star} | {signature.title} | {signature.setting} |\n"


def _part(signature: Signature) -> str:
    lines = [("On the wire", signature.wire), ("Setting", signature.setting), ("What to change", signature.remedy),
             ("Named when", signature.threshold)]  # fmt: skip
    star = "Read only with `--sections advice`.\n\n" if signature.on_request else ""
    body = "\n".join(
        fill(f"- **{name}**: {text}", _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for name, text in lines
    )
    return f"\n## {signature.id}\n{signature.title[0].upper()}{signature.title[1:]}.\n\n{star}{body}\n"


def document() -> str:
    """The page: a table of all signatures, then each with its threshold."""
    return _HEAD + "".join(map(_row, CATALOGUE)) + "".join(map(_part, CATALOGUE))
