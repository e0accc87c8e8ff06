"""Offsets of a group that somebody else set back: its members read records again, and that is no lag of their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from kafkatap.kernels.arrays import is_among

from ..batch import Array
from ..counting.count_forms import NUMBER, TEXT
from ..finding_words import and_more
from ..findings import Finding, Party
from ..groups.group_events import is_committed
from ..groups.offsets_over_time import SPAN_NS
from ..section_parts.counted import CLIENT, PLACE, Rows, counted, ended, largest, latest
from ..section_parts.section import SectionInput
from .parties import client_words
from .signature import Signature, spanning

#: Records of all partitions that are read again. Fewer are read again after any restart.
_LEAST = 100
_ROWS = 50_000
_PACKETS = 10


def _is_of_member(x: Rows) -> Any:
    """Members send a generation or an epoch; tools and readers that choose their partitions send -1."""
    return x.top("commit", "generation") >= 0


_COMMITTED = counted(
    "advice.offsets-set", CLIENT | PLACE | {"group": TEXT, "is_of_member": NUMBER}, is_committed,
    of=("commit partition",), newest="last", rows=_ROWS, beside=("committed partition", "commit"),
    more={"group": lambda x: x.top("commit", "group"), "is_of_member": _is_of_member,
          "span": lambda x: ended(x) // SPAN_NS},
    last=largest(ended), offset=latest("offset"), packet=latest("request_packet_first"),
)  # fmt: skip


class _Set(NamedTuple):
    """An offset that a client set back: `row` is its commit, `before` what a member had committed last."""

    row: dict[str, int]
    place: str
    before: int

    @property
    def records(self) -> int:
        return self.before - self.row["offset"]


def _sets(given: SectionInput) -> Iterator[_Set]:
    """Commits that no member sent, behind the one before, which a member did: another client."""
    places: dict[tuple[int, str, int], list[dict[str, int]]] = defaultdict(list)
    for row in given.rows(_COMMITTED.name, _is_of_others):
        topic = given.context.topic(row["topic"], row["topic_id"])
        if topic is not None:
            places[row["group"], topic, row["partition"]].append(row)
    for (_, topic, partition), mine in places.items():
        mine.sort(key=lambda row: row["last"])
        for before, row in pairwise(mine):
            is_other = any(before[name] != row[name] for name in ("client_id", "client_ip"))
            is_outside = before["is_of_member"] and not row["is_of_member"]
            if is_outside and is_other and row["offset"] < before["offset"]:
                yield _Set(row, f"{topic}-{partition}", before["offset"])


def _is_of_others(x: dict[str, Array]) -> Array:
    """Which commits are of a group for which somebody commits who is no member."""
    is_commit = (x["last"] > 0) & (x["group"] >= 0)
    found: Array = is_commit & is_among(x["group"], x["group"][is_commit & (x["is_of_member"] == 0)])
    return found


def _findings(given: SectionInput) -> Iterator[Finding]:
    found: dict[tuple[int, int, int], list[_Set]] = defaultdict(list)
    for one in _sets(given):
        found[one.row["group"], one.row["client_id"], one.row["client_ip"]].append(one)
    for sets in found.values():
        if sum(one.records for one in sets) >= _LEAST:
            yield _finding(given, sets)


def _finding(given: SectionInput, sets: Sequence[_Set]) -> Finding:
    context, worst = given.context, max(sets, key=lambda one: (one.records, one.place))
    group, records = context.text(worst.row["group"]) or "?", sum(one.records for one in sets)
    places = list(dict.fromkeys(one.place for one in sets))
    text = (
        f"{client_words(context, worst.row['client_id'], worst.row['client_ip'])}, which is no member, set the offsets "
        f'of group "{group}" back: {worst.place} from {worst.before:,} to {worst.row["offset"]:,}'
        f"{and_more(len(places) - 1)}; {records:,} records before what its members had committed"
    )
    row = spanning([{**one.row, "first": one.row["last"]} for one in sets])
    topics = dict.fromkeys(place.rpartition("-")[0] for place in places)
    made = OFFSETS_SET.found(
        given, row, text, 0,
        {"records": records, "from": worst.before, "to": worst.row["offset"], "partitions": len(places)},
        (("filter", "api == OffsetCommit"),), command="show",
        packets=tuple(sorted(one.row["packet"] for one in sets))[:_PACKETS],
    )  # fmt: skip
    return made._replace(parties=(Party("group", group), *made.parties, *(Party("topic", name) for name in topics)))


OFFSETS_SET = Signature(
    "offsets_set",
    "somebody set the offsets of a group back",
    "An OffsetCommit without a generation, as tools send it while a group has no members, with offsets behind those "
    "that the group committed last.",
    "ACLs of the group",
    "Ask whoever runs that client whether this was meant: `kafka-consumer-groups.sh --reset-offsets` does it. Members "
    "read all records since then again; lag falls as fast as they read, and more of them help. Set the offsets forward "
    "in the same way if they should not.",
    f"one such commit, directly after one of a member that is another client, and {_LEAST} records or more of all "
    "partitions. Not if only readers without a group protocol commit, which go back to their own checkpoints.",
    _findings,
    counts=(_COMMITTED,),
    label="offsets set back",
)  # fmt: skip
