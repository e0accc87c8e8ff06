"""Two members of a group have one group.instance.id, and expel each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import units
from ..counting.count_forms import TEXT
from ..finding_words import counted as many
from ..finding_words import listed
from ..findings import ERROR, Finding, Party
from ..section_parts.counted import CLIENT, Rows, counted, largest, largest_where, least, least_where, total
from ..section_parts.section import SectionInput
from .parties import client_parties, client_words
from .signature import Signature

_FENCED_INSTANCE_ID = 82
#: Answers to members of one client only: fewer may come to one that joined anew, as an answer to it was lost.
_LEAST_OF_ONE = 3
_ANSWERS = {
    "join group": "joined group", "heartbeat": "heartbeat answer", "sync group": "synced group",
    "consumer heartbeat": "consumer heartbeat answer",
}  # fmt: skip


def _is_fenced(x: Rows) -> Any:
    return x.top(_ANSWERS[x.fact], "error_code", 0) == _FENCED_INSTANCE_ID


#: Who has each group.instance.id, and how often it is told that another member has it.
_INSTANCES = counted(
    "advice.instances", CLIENT | {"group": TEXT, "instance": TEXT}, lambda x: (x.instance >= 0) & (x.group >= 0),
    of=tuple(_ANSWERS), newest="seen", beside=tuple(_ANSWERS.values()),
    requests=total(1), fenced=total(_is_fenced), seen=largest("request_first"),
    first=least(lambda x: least_where(_is_fenced(x), x.response_last)),
    last=largest(lambda x: largest_where(_is_fenced(x), x.response_last)),
    packet=least(lambda x: least_where(_is_fenced(x), x.response_packet_last.astype(np.int64))),
)  # fmt: skip


def _findings(given: SectionInput) -> Iterator[Finding]:
    found: dict[tuple[int, int], list[dict[str, int]]] = defaultdict(list)
    for row in given.rows(_INSTANCES.name):
        found[row["group"], row["instance"]].append(row)
    for rows in found.values():
        if sum(row["fenced"] for row in rows) >= (1 if len(rows) > 1 else _LEAST_OF_ONE):
            yield _finding(given, sorted(rows, key=lambda row: (-row["fenced"], -row["requests"])))


def _finding(given: SectionInput, rows: list[dict[str, int]]) -> Finding:
    context, fenced = given.context, [row for row in rows if row["fenced"]]
    group, instance = (context.text(rows[0][name]) or "" for name in ("group", "instance"))
    first, last = min(row["first"] for row in fenced), max(row["last"] for row in fenced)
    times = sum(row["fenced"] for row in fenced)
    who = listed([client_words(context, row["client_id"], row["client_ip"]) for row in rows])
    if len(rows) == 1:
        who = f"two members of {who} have"
    else:
        who += " have"
    text = (
        f'{who} the same group.instance.id "{instance}" in group "{group}", and expel each other: '
        f"{many(times, 'time')}" + (f" in {units.duration(last - first)}" if times > 1 else "")
    )
    clients = [party for row in rows for party in client_parties(context, row["client_id"], row["client_ip"])]
    return SAME_INSTANCE.rule.found(
        text, Party("group", group), *dict.fromkeys(clients), begin=first, end=last,
        packets=[min(row["packet"] for row in fenced)], see=[("filter", "error == FENCED_INSTANCE_ID")], severity=ERROR,
        fenced=times, clients=len(rows), instance=instance,
    )._replace(command="show")  # fmt: skip


SAME_INSTANCE = Signature(
    "same_instance",
    "two members have one group.instance.id",
    "A request of a static member is answered FENCED_INSTANCE_ID: another member joined with the same "
    "group.instance.id.",
    "group.instance.id",
    "Give each member its own `group.instance.id`, such as the name of its host or pod. A member that is replaced has "
    "to end before the new one starts.",
    f"one such answer if two clients have it, and {_LEAST_OF_ONE} if both are one client by id and address. Time lost: "
    "unknown.",
    _findings,
    counts=(_INSTANCES,),
    label="fenced",
)  # fmt: skip
