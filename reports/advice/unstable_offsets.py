"""Members that wait for the offsets of their group, which an open transaction is about to commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .. import units
from ..counting.count_forms import NUMBER, TEXT
from ..finding_words import and_more
from ..findings import Finding, Party
from ..section_parts.counted import CLIENT, PLACE, RESULTS, Rows, counted, largest, least, total
from ..section_parts.section import SectionInput
from ..section_parts.transaction_log import followed
from .parties import client_option, client_parties, client_words
from .signature import Signature

_UNSTABLE = 88
#: A transaction usually ends at once. A person notices a member that begins later by this.
_LEAST_NS = units.SECOND
_GROUP = {"group": TEXT}


def _group(x: Rows) -> Any:
    """The group of OffsetFetch requests, of versions with one group and with several."""
    return np.maximum(x.top("offset fetch", "group"), x.top("offset fetch group", "group"))


#: Of readers: partitions whose offset the coordinator does not give.
_REFUSED = counted(
    "advice.unstable-offsets", CLIENT | PLACE | _GROUP, lambda x: x.error_code == _UNSTABLE, of=RESULTS,
    more={"group": _group}, newest="last", beside=("offset fetch", "offset fetch group"),
    codes=total(1), first=least("request_first"), last=largest("response_last"), packet=least("response_packet_last"),
)  # fmt: skip
#: Of producers: the offsets in their transactions, by second.
_OFFSETS = counted(
    "advice.transaction-offsets", CLIENT | PLACE | _GROUP | {"transactional_id": TEXT, "second": NUMBER},
    of=("transaction commit partition",), newest="last", beside=("transaction commit",),
    more={"group": lambda x: x.top("transaction commit", "group"),
          "transactional_id": lambda x: x.top("transaction commit", "transactional_id"),
          "second": lambda x: x.request_first // units.SECOND},
    last=largest("request_first"), commits=total(1),
)  # fmt: skip
#: Group, topic, partition.
_Place = tuple[int, str, int]


class _Wait(NamedTuple):
    """A reader waited for an offset. `since`: when the transaction was told of it; `end`: when it ended, None: it did
    not in the capture."""

    row: dict[str, int]
    place: _Place
    since: int
    end: int | None


def _place(given: SectionInput, row: dict[str, int]) -> _Place:
    return row["group"], given.context.topic(row["topic"], row["topic_id"]) or "?", row["partition"]


def _findings(given: SectionInput) -> Iterator[Finding]:
    refused = [
        row for row in given.rows(_REFUSED.name) if row["last"] - row["first"] >= _LEAST_NS and row["group"] >= 0
    ]
    if not refused:
        return
    commits: dict[_Place, list[dict[str, int]]] = defaultdict(list)
    for row in given.rows(_OFFSETS.name):
        commits[_place(given, row)].append(row)
    ends = {item.name: item.ends for item in followed(given)}
    waits: dict[tuple[int, int, int], list[_Wait]] = defaultdict(list)
    for row in refused:
        place = _place(given, row)
        open_ones = []
        for of in commits[place]:
            end = min((at for at in ends.get(of["transactional_id"], ()) if at >= of["last"]), default=None)
            if of["last"] <= row["first"] and (end is None or end >= row["last"]):
                open_ones.append(((of["transactional_id"], of["client_id"], of["client_ip"]), of["last"], end))
        if len({who for who, _, _ in open_ones}) == 1:  # of several it is not known which one holds it back
            who, since, end = open_ones[-1]
            waits[who].append(_Wait(row, place, since, end))
    for (name, client, ip), found in waits.items():
        yield _finding(given, name, (client, ip), found)


def _finding(given: SectionInput, name: int, producer: tuple[int, int], waits: list[_Wait]) -> Finding:
    context = given.context
    rows = [wait.row for wait in waits]
    longest = max(rows, key=lambda row: row["last"] - row["first"])
    readers = list(dict.fromkeys((row["client_id"], row["client_ip"]) for row in rows))
    group, topic, partition = waits[0].place
    is_open = any(wait.end is None for wait in waits)
    who = f'transaction "{context.text(name)}" of {client_words(context, *producer)}'
    waited = units.duration(longest["last"] - longest["first"])
    text = (
        f"{client_words(context, *readers[0])}{and_more(len(readers) - 1)} waited {waited} "
        f'for the offsets of group "{context.text(group)}" on {topic}-{partition}{and_more(len(waits) - 1)}: {who} '
        f"{'holds' if is_open else 'held'} them back"
    )
    begin, last = min(row["first"] for row in rows), max(row["last"] for row in rows)
    parties = (
        *(party for one in readers for party in client_parties(context, *one)), *client_parties(context, *producer),
        Party("producer", context.text(name) or ""), Party("group", context.text(group) or ""), Party("topic", topic),
    )  # fmt: skip
    lost = sum(
        max(row["last"] - row["first"] for row in rows if (row["client_id"], row["client_ip"]) == one)
        for one in readers
    )
    return UNSTABLE_OFFSETS.rule.found(
        text, *dict.fromkeys(parties), begin=begin, end=None if is_open else last,
        packets=[min(row["packet"] for row in rows)], lost=lost,
        see=[("sections", "transactions"), *client_option(context, producer[0])],
        codes=sum(row["codes"] for row in rows), readers=len(readers), partitions=len({wait.place for wait in waits}),
        longest_ns=longest["last"] - longest["first"],
    )  # fmt: skip


UNSTABLE_OFFSETS = Signature(
    "unstable_offsets",
    "an open transaction holds back the offsets of a group",
    "OffsetFetch is answered UNSTABLE_OFFSET_COMMIT again and again: a transaction with TxnOffsetCommit for these "
    "partitions has not ended.",
    "transaction.timeout.ms, the commit interval of the producer",
    "Commit or abort sooner. `transaction.timeout.ms` bounds what a producer costs that died: lower it to the longest "
    "transaction that the application makes.",
    f"a member gets that code for {units.duration(_LEAST_NS)} or longer, and one transaction alone was told of offsets "
    "of that group and partition before, and did not end until then. Time lost: of each member, from the first such "
    "request to the last answer.",
    _findings,
    counts=(_REFUSED, _OFFSETS),
    on_request=True,
    from_all=True,
    label="held back",
)  # fmt: skip
