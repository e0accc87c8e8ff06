"""The text of two pages, made from the catalogue of signatures and the table of causes: docs/findings.md for users, and
docs/contributors/findings.md with the numbers and conditions of each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from textwrap import fill

from . import kinds
from .advice.catalogue import CATALOGUE
from .advice.signature import Signature
from .section_parts.registry import SMALL_INPUT
from .sections.folds import FOLDS, Fold, Kinds

_HEAD = """# Findings: what to change, and what follows from what

The first lines of a report, its events and its advice are *findings*. `kafkatap report --sections advice CAPTURE` names
the settings that explain what a capture shows, with the time lost, and the first packet. The section `events` says what
happened, and when.

A finding that follows from another one is folded under it: it is no line of its own on the first screen, and `--json`
names its cause in the column `cause`. After a broker that hung, these are for example the leaders that moved, the
errors and the rebalances. [All rules](contributors/findings.md#causes).

"""
_FAULT = """## Whose fault
A line on slow requests (`slow_…`) names whose fault it is, by counting who suffers: clients with a large share of slow
requests, against those that asked as often and are well. "Few" is at most one in five.

| the line is on | if |
|---|---|
| a broker | 80 % of the time passed at it; clients of two hosts suffer there, and few are \
well; at other brokers two clients are well, and few suffer |
| the only broker | clients of two hosts and of two client_ids suffer, and few are well; they do not wait \
behind requests of their own |
| all brokers | clients of two hosts suffer at each of two brokers, and few are well at any |
| a host | only its clients suffer, by the network or by themselves; two clients of other hosts at its brokers \
are well |
| a client | in all other cases: the one that lost most |

A broker is not accused if one client lost more than 80 % of the time, or if all that suffer have one client_id. A host
is not accused if its requests wait at the broker.

"""
_SIGNATURES = """## Signatures
A signature is a pattern on the wire that a setting explains. The usual report shows the costliest in its first lines.
It reads those marked with \\* only if the captures have at most {small} MiB in all, as stored. For larger captures,
pipes, `--follow` and `kafkatap live`, use `--sections advice`. [How often and how long](contributors/findings.md) each
has to be seen is on a page of its own.
"""
_NUMBERS = """# The numbers of findings

[Findings](../findings.md) describes the signatures. This page has the least numbers from which each counts. Each is
proven by recordings in [samples/advice](../../samples/advice/README.md).

## Signatures
"""
_SUFFERS = """
## Whose fault
A client of a host suffers at a broker if its share of slow requests is a quarter or more of that of the others that are
slow, and it has two of them. It is well if its share is less, and it asked so often that three slow ones would be
expected. Only the APIs that are slow count. A broker whose suffering clients all have one client_id counts all the same
if that client_id is well at other brokers. All brokers with one address count as that host.
"""
_CAUSES = """
## Causes
What follows from another finding is no line of its own on the first screen, and counts for the one that it follows
from: the column `cause` of `--json`. The first row that fits decides. "Half" is at least half.

| finding | follows from | if |
|---|---|---|
"""
_WIDTH, _SMALL = 120, SMALL_INPUT >> 20
_SETTINGS = re.compile(r"\w+[._][\w.]*\w")


def _paragraph(text: str, indent: str = "") -> str:
    return fill(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) + "\n"


def _part(signature: Signature) -> str:
    title = f"{signature.title[0].upper()}{signature.title[1:]}."
    if any(name not in signature.remedy for name in _SETTINGS.findall(signature.setting)):
        title += f" Setting: {signature.setting}."
    if signature.on_request:
        title += " \\*"
    lines = (f"- **Wire**: {signature.wire}", f"- **Change**: {signature.remedy}")
    return f"\n### {signature.id}\n{_paragraph(title)}" + "".join(_paragraph(line, "  ") for line in lines)


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
    """The page for users: all signatures."""
    return _HEAD + _FAULT + _SIGNATURES.replace("{small}", str(_SMALL)) + "".join(map(_part, CATALOGUE))


def numbers_document() -> str:
    """The page for contributors: the threshold of each signature, and the table of causes."""
    thresholds = "".join(_paragraph(f"- `{s.id}`: {s.threshold}", "  ") for s in CATALOGUE)
    return _NUMBERS + thresholds + _SUFFERS + _CAUSES + "".join(map(_cause, FOLDS))
