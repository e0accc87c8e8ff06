"""An open transaction: readers of committed records get nothing that was written after it began."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .. import units
from ..batch import Array
from ..counting.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm
from ..counting.count_table import MAX, MIN, SUM
from ..finding_words import and_more
from ..findings import WARNING, Finding, Party
from ..section_parts.gathered import Gathered
from ..section_parts.section import SectionInput
from ..section_parts.section_counts import Tally
from ..section_parts.transaction_log import followed
from .parties import client_option, client_parties, client_words
from .signature import Signature, section_of

_COMMITTED, _TRANSACTIONAL = 1, 0x10
#: A transaction usually ends at once, or with a commit interval of 100 ms (Kafka Streams). A person notices this.
_LEAST_NS = 1_000_000_000

_PLACE = {"topic": TEXT, "topic_id": TEXT, "partition": NUMBER}
_NO_PLACE = {"topic": OTHER, "topic_id": -1, "partition": -1}
#: Of readers: the Fetch responses whose last stable offset is behind the high watermark.
_HELD = CountForm(
    "advice.held-readers",
    {"client_id": TEXT, "client_ip": ADDRESS, **_PLACE, "stable_offset": NUMBER},
    {"fetches": SUM, "waiting_ns": SUM, "high_watermark": MAX, "first": MIN, "last": MAX, "packet": MIN},
    {"client_id": OTHER, "client_ip": -1, **_NO_PLACE, "stable_offset": -1},
    newest="last",
)
#: Of producers: the batches of transactions. The first one of a partition is where readers stop.
_WRITTEN = CountForm(
    "advice.transactional-batches",
    {**_PLACE, "offset": NUMBER, "producer_id": NUMBER, "transactional_id": TEXT, "client_id": TEXT,
     "client_ip": ADDRESS},
    {"batches": SUM, "first": MIN, "last": MAX, "packet": MIN},
    {**_NO_PLACE, "offset": -1, "producer_id": -1, "transactional_id": OTHER, "client_id": OTHER, "client_ip": -1},
    newest="last",
)  # fmt: skip
#: The largest last stable offset of a partition: whatever began before it has ended.
_STABLE = CountForm("advice.stable-offsets", _PLACE, {"seen": SUM, "stable_offset": MAX}, _NO_PLACE)


def _read(gathered: Gathered, tally: Tally) -> None:
    _read_readers(gathered, tally)
    _read_writers(gathered, tally)


def _read_readers(gathered: Gathered, tally: Tally) -> None:
    rows = gathered.facts("fetched partition")
    isolation = gathered.top("fetch", "isolation_level", 0)
    stable, high = rows["stable_offset"], rows["high_watermark"]
    known = rows.where(stable >= 0)
    tally.add(_STABLE.name, {name: known[name] for name in _PLACE},
              {"seen": 1, "stable_offset": known["stable_offset"]})  # fmt: skip
    rows = rows.where((isolation[rows.exchange] == _COMMITTED) & (stable >= 0) & (stable < high))
    if not len(rows):
        return
    of = gathered.rows(rows.exchange)
    keys = {name: rows[name] for name in (*_PLACE, "stable_offset")}
    tally.add(_HELD.name, keys | {name: of[name] for name in ("client_id", "client_ip")}, {
        "fetches": 1, "waiting_ns": of["waiting_ns"], "high_watermark": rows["high_watermark"],
        "first": of["request_first"], "last": of["response_last"], "packet": of["response_packet_last"],
    })  # fmt: skip


def _read_writers(gathered: Gathered, tally: Tally) -> None:
    """A request has a batch for each partition, in the same order as its response has their offsets."""
    batches, answers = gathered.facts("batch"), gathered.facts("produced partition")
    batches = batches.where((batches["attributes"] & _TRANSACTIONAL != 0) & (batches["producer_id"] >= 0))
    if not len(batches) or not len(answers):
        return
    answers = answers.where((answers["error_code"] == 0) & (answers["base_offset"] >= 0))
    number = _places(gathered, batches, answers)
    mine, theirs = number[: len(batches)], number[len(batches) :]
    order = np.argsort(theirs, kind="stable")
    at = np.searchsorted(theirs[order], mine)
    found = np.flatnonzero((at < len(order)) & (theirs[order[np.minimum(at, len(order) - 1)]] == mine))
    batches, answer = batches.where(found), order[at[found]]
    of = gathered.rows(batches.exchange)
    ids = gathered.top("produce", "transactional_id")
    keys = {name: batches[name] for name in (*_PLACE, "producer_id")}
    keys |= {name: of[name] for name in ("client_id", "client_ip")}
    keys |= {"offset": answers["base_offset"][answer], "transactional_id": ids[batches.exchange]}
    tally.add(_WRITTEN.name, keys, {
        "batches": 1, "first": of["request_first"], "last": of["request_first"], "packet": of["request_packet_first"],
    })  # fmt: skip


def _places(gathered: Gathered, *kinds: object) -> Array:
    """A number for the exchange, topic and partition of each fact of some kinds, one after another: int64."""
    columns = [np.concatenate([each.exchange for each in kinds])]  # type: ignore[attr-defined]
    columns += [np.concatenate([each[name] for each in kinds]).astype(np.int64) for name in _PLACE]  # type: ignore[index]
    _, number = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    found: Array = number.reshape(-1)
    return found


class _Writer(NamedTuple):
    """Who wrote the first batch of a transaction to a partition, and when. Numbers of the context."""

    client_id: int
    client_ip: int
    transactional_id: int
    producer_id: int
    begin: int = 0
    packet: int = 0

    @property
    def who(self) -> _Writer:
        """The same producer, of any transaction."""
        return self._replace(begin=0, packet=0)


class _Hold(NamedTuple):
    """A reader that stopped at an offset of a partition. `topic`: its name, if `place` has the id. `end`: when the
    transaction ended, or the last response that shows it as open. `is_by_broker`: the coordinator ended it."""

    reader: tuple[int, int]
    place: tuple[str, int, int]
    topic: str
    begin: int
    end: int
    is_open: bool
    is_by_broker: bool
    records: int
    packet: int


def _findings(given: SectionInput) -> list[Finding]:
    return [finding for finding, _ in given.once(_found)]


def cause_of(
    given: SectionInput, reader: tuple[str | None, str | None], place: tuple[str, int, int]
) -> tuple[Any, ...] | None:
    """The key of the finding on a transaction that holds a reader (address, client_id) at an offset of a partition:
    None if there is none."""
    given = given.learned_by(section_of(OPEN_TRANSACTIONS))
    context = given.context
    for finding, holds in given.once(_found):
        for hold in holds:
            client, ip = hold.reader
            if hold.place == place and (context.address(ip), context.text(client)) == reader:
                return finding.key
    return None


def _found(given: SectionInput) -> list[tuple[Finding, list[_Hold]]]:
    """The findings, each with what it is made of."""
    writers, holds = _writers(given), defaultdict[_Writer | None, list[_Hold]](list)
    logs, stable = {item.name: item for item in followed(given)}, _stable_offsets(given)
    for row in given.rows(_HELD.name):
        place = (given.context.topic(row["topic"], row["topic_id"]) or "?", row["partition"], row["stable_offset"])
        known = _named(place, row, writers)
        writer, begin, end, is_by_broker = writers.get(known), row["first"], row["last"], False
        ended = None
        if writer is not None:
            begin, log = max(begin, writer.begin), logs.get(writer.transactional_id)
            ended = None if log is None else next((at for at in log.ends if at >= writer.begin), None)
            is_by_broker = log is not None and ended in log.ends_by_broker
        is_open = ended is None and stable.get(place[:2], -1) <= place[2]
        end = end if ended is None else ended
        if end - begin >= _LEAST_NS:
            held = row["high_watermark"] - row["stable_offset"]
            hold = _Hold(
                (row["client_id"], row["client_ip"]), place, known[0], begin, end, is_open, is_by_broker, held,
                row["packet"],
            )  # fmt: skip
            holds[None if writer is None else writer.who].append(hold)
    return [(_finding(given, writer, found), found) for writer, found in holds.items()]


def _stable_offsets(given: SectionInput) -> dict[tuple[str, int], int]:
    """The largest last stable offset of each partition."""
    found: dict[tuple[str, int], int] = {}
    for row in given.rows(_STABLE.name):
        place = (given.context.topic(row["topic"], row["topic_id"]) or "?", row["partition"])
        found[place] = max(found.get(place, -1), row["stable_offset"])
    return found


def _named(
    place: tuple[str, int, int], row: dict[str, int], writers: Mapping[tuple[str, int, int], _Writer]
) -> tuple[str, int, int]:
    """A place with the topic's name. Fetch requests have ids of topics, Produce requests names: if no Metadata with
    both was captured, the only transaction that began at this offset of this partition, before the reader came there,
    says which topic it is."""
    if row["topic"] >= 0 or place in writers:
        return place
    same = [one for one, writer in writers.items() if one[1:] == place[1:] and writer.begin <= row["last"]]
    return same[0] if len(same) == 1 else place


def _writers(given: SectionInput) -> dict[tuple[str, int, int], _Writer]:
    """Who wrote the batch of a transaction at an offset of a partition."""
    found: dict[tuple[str, int, int], _Writer] = {}
    for row in given.rows(_WRITTEN.name):
        place = (given.context.topic(row["topic"], row["topic_id"]) or "?", row["partition"], row["offset"])
        one = _Writer(
            row["client_id"], row["client_ip"], row["transactional_id"], row["producer_id"], row["first"], row["packet"]
        )
        found[place] = min(found.get(place, one), one, key=lambda writer: writer.begin)
    return found


def _finding(given: SectionInput, writer: _Writer | None, holds: list[_Hold]) -> Finding:
    context = given.context
    longest: dict[tuple[object, ...], int] = {}  # by reader and transaction: over its partitions
    for hold in holds:
        of = hold.begin // _LEAST_NS if writer is None else None if hold.is_open else hold.end
        key = (hold.reader, of)
        longest[key] = max(longest.get(key, 0), hold.end - hold.begin)
    readers = sorted(
        {hold.reader for hold in holds}, key=lambda one: (context.text(one[0]) or "", context.address(one[1]) or "")
    )
    places = sorted({(hold.topic, hold.place[1]) for hold in holds})
    most, is_open = max(holds, key=lambda hold: hold.end - hold.begin), any(hold.is_open for hold in holds)
    times = len({which for _, which in longest})
    parties: tuple[Party, ...] = ()
    if writer is None:
        who = "a transaction of an unknown producer"
    else:
        name = context.text(writer.transactional_id)
        who = f'transaction "{name}" of {client_words(context, writer.client_id, writer.client_ip)}'
        parties = (Party("producer", name or str(writer.producer_id)),)
        parties += client_parties(context, writer.client_id, writer.client_ip)
    reader = client_words(context, *readers[0]) + and_more(len(readers) - 1)
    where = f"{places[0][0]}-{places[0][1]}" + and_more(len(places) - 1)
    many = f"{len(readers):,} reader{'s' if len(readers) > 1 else ''} of committed records"
    if times > 1:
        held, still = f"held back readers of committed records {times:,} times, up to", "; one is still open"
    else:
        held, still = f"{'holds' if is_open else 'held'} back {many} for", "; it is still open"
    if not is_open:
        still = "; the coordinator aborted it" if most.is_by_broker else ""
    text = (
        f"{who} {held} {units.duration(most.end - most.begin)} and {most.records:,} offsets: {reader} on {where}{still}"
    )
    parties += tuple(dict.fromkeys(party for each in readers for party in client_parties(context, *each)))
    parties += tuple(Party("topic", topic) for topic in dict.fromkeys(topic for topic, _ in places))
    return Finding(
        OPEN_TRANSACTIONS.id, WARNING, OPEN_TRANSACTIONS.label, text,
        sum(longest.values()), min(hold.begin for hold in holds),
        None if is_open else max(hold.end for hold in holds),
        {"held_ns": sum(longest.values()), "longest_ns": most.end - most.begin, "holds": len(longest),
         "offsets": most.records, "offset": most.place[2], "readers": len(readers), "partitions": len(places),
         "producer_id": None if writer is None else writer.producer_id},
        (min(hold.packet for hold in holds),), parties, OPEN_TRANSACTIONS.setting, _SOONER + _ABORT * is_open,
        (("sections", "transactions"), *(client_option(context, writer.client_id) if writer else ())),
    )  # fmt: skip


_SOONER = (
    "Commit or abort sooner: fewer records in a transaction, no waits within it. `transaction.timeout.ms` bounds what "
    "a dead producer costs."
)
_ABORT = " `kafka-transactions.sh abort` ends one that hangs."
OPEN_TRANSACTIONS = Signature(
    "open_transaction",
    "an open transaction holds back readers of committed records",
    "Fetch responses for isolation.level=read_committed have a last stable offset that stays behind the high "
    "watermark: that of the first record batch of a transaction without EndTxn or marker.",
    "transaction.timeout.ms, the commit interval of the producer",
    _SOONER + _ABORT,
    f"the last stable offset stays for {_LEAST_NS // 1_000_000_000} s. If the producer was not captured, the readers "
    "are named alone. Time lost: from the reader's first such Fetch until the answer to EndTxn, or the marker.",
    _findings,
    (_HELD, _WRITTEN, _STABLE),
    _read,
    facts=("fetch", "fetched partition", "batch", "produced partition", "produce"),
    on_request=True,
    from_all=True,
    label="held back",
)  # fmt: skip
