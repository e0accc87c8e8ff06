"""The text of docs/findings.md, made from the catalogue of signatures and the table of causes."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import fill

from . import kinds
from .advice.catalogue import CATALOGUE
from .advice.signature import Signature
from .section_parts.registry import SMALL_INPUT
from .sections.folds import FOLDS, Fold, Kinds

_HEAD = """# Findings: what to change, and what follows from what

The first lines of a report, its events and its advice are *findings*. `kafkatap report --sections advice CAPTURE` names
the settings that explain what a capture shows, with the time lost, their numbers, and the first packet; the section
`events` tells what happened, and when. A finding that follows from another one is folded under it
([causes](#causes)).

## Signatures
A signature is a pattern on the wire that a setting explains. The usual report shows the costliest in its first lines.
It reads those marked with * only if the captures have at most {small} MiB in all, as stored. For larger captures,
pipes, `--follow` and `kafkatap live`, use `--sections advice`.

Numbers of *when* are the least. Each is proven by recordings in [samples/advice](../samples/advice/README.md).

| signature | what is wrong | setting |
|---|---|---|
"""
_FAULT = """
## Whose fault
A slow line (`slow_…`) names whose fault it is, by counting who suffers. A client of a host suffers at a broker if its
share of slow requests is a quarter or more of that of the others that are slow, and it has two of them. It is well if
its share is less, and it asked so often that three slow ones would be expected. Only the APIs that are slow count.

| the line is on | if |
|---|---|
| a broker | 80 % of the time passed at it; clients of two hosts suffer there, and few are \
well; two clients at other brokers are well, and few suffer |
| the only broker | clients of two hosts and of two client_ids suffer, and few are well; they do not wait \
behind requests of their own |
| all brokers | clients of two hosts suffer at each of two brokers, and few are well at any; with one address: on \
that host |
| a host | only its clients suffer, by the network or by themselves; two clients of other hosts at its brokers \
are well |
| a client | in all other cases: the one that lost most |

"Few" is at most one in five, and two is two or more. A broker is not accused if one client lost more than 80 % of the
time, or if all that suffer have one client_id, unless that is well at other brokers. Nor is a host whose requests wait
at the broker: that time begins when a request is whole.
"""
_CAUSES = """
## Causes
What follows from another finding is no line of its own on the first screen, and counts for the one that it follows
from: the column `cause` of `--json`. The first row that fits decides. "Half" is at least half.

| finding | follows from | if |
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
    return f"\n### {signature.id}\n{body}\n"


def _listed(ids: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in ids)


def _cause(fold: Fold) -> str:
    causes, section = fold.causes, {kinds.ADVICE: "advice", kinds.EVENTS: "an event"}
    if isinstance(causes, Kinds):
        left_out = f", but not {_listed(causes.without)}" if causes.without else ""
        causes_text = f"{section[causes.section]}{left_out}"
    else:
        causes_text = _listed(sorted(causes))
    return f"| {_listed(fold.effects)} | {causes_text} | {fold.text} |\n"


def document() -> str:
    """The page: a table of all signatures, each with its threshold, and the table of causes."""
    signatures = "".join(map(_row, CATALOGUE)) + "".join(map(_part, CATALOGUE))
    return _HEAD.replace("{small}", str(_SMALL)) + signatures + _FAULT + _CAUSES + "".join(map(_cause, FOLDS))
