"""An open transaction: readers of committed records get nothing that was written after it began."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import units
from ..counting.count_forms import NUMBER, TEXT
from ..finding_words import and_more
from ..findings import Finding, Party
from ..section_parts.counted import CLIENT, PLACE, Rows, counted, largest, least, total
from ..section_parts.section import SectionInput
from ..section_parts.transaction_log import followed
from .parties import client_option, client_parties, client_words
from .signature import Signature, section_of

_COMMITTED, _TRANSACTIONAL = 1, 0x10
#: A transaction usually ends at once, or with a commit interval of 100 ms (Kafka Streams). A person notices this.
_LEAST_NS = 1_000_000_000


def _offset(x: Rows) -> Any:
    """Of the first record of batches."""
    return x.beside("produced partition", "base_offset")


#: Of readers: the Fetch responses whose last stable offset is behind the high watermark.
_HELD = counted(
    "advice.held-readers", CLIENT | PLACE | {"stable_offset": NUMBER},
    lambda x: (x.stable_offset >= 0) & (x.stable_offset < x.high_watermark)
    & (x.top("fetch", "isolation_level", 0) == _COMMITTED),
    of=("fetched partition",), newest="last", beside=("fetch",),
    fetches=total(1), high_watermark=largest("high_watermark"), first=least("request_first"),
    last=largest("response_last"), packet=least("response_packet_last"),
)  # fmt: skip
#: Of producers: the batches of transactions. The first one of a partition is where readers stop. A request has a batch
#: for each partition, and its response the offset.
_WRITTEN = counted(
    "advice.transactional-batches", PLACE | CLIENT | {"producer_id": NUMBER, "transactional_id": TEXT},
    (
        lambda x: (x.attributes & _TRANSACTIONAL != 0) & (x.producer_id >= 0),
        lambda x: (x.beside("produced partition", "error_code") == 0) & (_offset(x) >= 0),
    ),
    of=("batch",), newest="last", beside=("produced partition", "produce"),
    more={"offset": _offset, "transactional_id": lambda x: x.top("produce", "transactional_id")},
    batches=total(1), first=least("request_first"), last=largest("request_first"),
)  # fmt: skip
#: The largest last stable offset of a partition: whatever began before it has ended.
_STABLE = counted(
    "advice.stable-offsets", PLACE, lambda x: x.stable_offset >= 0, of=("fetched partition",),
    seen=total(1), stable_offset=largest("stable_offset"),
)  # fmt: skip


#: An offset of a partition: topic, partition, offset.
_Place = tuple[str, int, int]


class _Writer(NamedTuple):
    """Who wrote the first batch of a transaction to a partition, and when. Numbers of the context."""

    client_id: int
    client_ip: int
    transactional_id: int
    producer_id: int
    first: int

    @property
    def who(self) -> _Writer:
        """The same producer, of any transaction."""
        return self._replace(first=0)


class _Hold(NamedTuple):
    """A reader that stopped at an offset of a partition. `topic`: its name, if `place` has the id. `end`: when the
    transaction ended, or the last response that shows it as open. `is_by_broker`: the coordinator ended it."""

    reader: tuple[int, int]
    place: _Place
    topic: str
    begin: int
    end: int
    is_open: bool
    is_by_broker: bool
    records: int
    packet: int


def _findings(given: SectionInput) -> list[Finding]:
    return [finding for finding, _ in given.once(_found)]


def cause_of(given: SectionInput, reader: tuple[str | None, str | None], place: _Place) -> tuple[Any, ...] | None:
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


def _place(given: SectionInput, row: dict[str, int], offset: str) -> _Place:
    return given.context.topic(row["topic"], row["topic_id"]) or "?", row["partition"], row[offset]


def _found(given: SectionInput) -> list[tuple[Finding, list[_Hold]]]:
    """The findings, each with what it is made of."""
    writers, holds = _writers(given), defaultdict[_Writer | None, list[_Hold]](list)
    logs, stable = {item.name: item for item in followed(given)}, _stable_offsets(given)
    for row in given.rows(_HELD.name):
        place = _place(given, row, "stable_offset")
        known = _named(place, row, writers)
        writer, begin, ended, is_by_broker = writers.get(known), row["first"], None, False
        if writer is not None:
            begin, log = max(begin, writer.first), logs.get(writer.transactional_id)
            ended = None if log is None else next((at for at in log.ends if at >= writer.first), None)
            is_by_broker = log is not None and ended in log.ends_by_broker
        is_open = ended is None and stable.get(place[:2], -1) <= place[2]
        end = row["last"] if ended is None else ended
        if end - begin >= _LEAST_NS:
            holds[None if writer is None else writer.who].append(_Hold(
                (row["client_id"], row["client_ip"]), place, known[0], begin, end, is_open, is_by_broker,
                row["high_watermark"] - row["stable_offset"], row["packet"],
            ))  # fmt: skip
    return [(_finding(given, writer, found), found) for writer, found in holds.items()]


def _stable_offsets(given: SectionInput) -> dict[tuple[str, int], int]:
    """The largest last stable offset of each partition."""
    found: dict[tuple[str, int], int] = {}
    for row in given.rows(_STABLE.name):
        topic, partition, offset = _place(given, row, "stable_offset")
        found[topic, partition] = max(found.get((topic, partition), -1), offset)
    return found


def _named(place: _Place, row: dict[str, int], writers: Mapping[_Place, _Writer]) -> _Place:
    """A place with the topic's name. Fetch requests have ids of topics, Produce requests names: if no Metadata with
    both was captured, the only transaction that began at this offset of this partition, before the reader came there,
    says which topic it is."""
    if row["topic"] >= 0 or place in writers:
        return place
    same = [one for one, writer in writers.items() if one[1:] == place[1:] and writer.first <= row["last"]]
    return same[0] if len(same) == 1 else place


def _writers(given: SectionInput) -> dict[_Place, _Writer]:
    """Who wrote the batch of a transaction at an offset of a partition."""
    found: dict[_Place, _Writer] = {}
    for row in given.rows(_WRITTEN.name):
        place, one = _place(given, row, "offset"), _Writer(*(row[name] for name in _Writer._fields))
        found[place] = min(found.get(place, one), one, key=lambda writer: writer.first)
    return found


def _time_of(hold: _Hold, writer: _Writer | None) -> tuple[object, ...]:
    """The reader and the transaction that held it back: the same on all partitions."""
    return hold.reader, hold.begin // _LEAST_NS if writer is None else None if hold.is_open else hold.end


def _finding(given: SectionInput, writer: _Writer | None, holds: list[_Hold]) -> Finding:
    context = given.context
    longest: dict[tuple[object, ...], int] = {}  # by reader and transaction: over its partitions
    offsets: Counter[tuple[object, ...]] = Counter()
    for hold in holds:
        key = _time_of(hold, writer)
        longest[key] = max(longest.get(key, 0), hold.end - hold.begin)
        offsets[key] += hold.records
    readers = sorted(
        {hold.reader for hold in holds}, key=lambda one: (context.text(one[0]) or "", context.address(one[1]) or "")
    )
    places = sorted({(hold.topic, hold.place[1]) for hold in holds})
    most, is_open = max(holds, key=lambda hold: hold.end - hold.begin), any(hold.is_open for hold in holds)
    times, records = len({which for _, which in longest}), offsets[_time_of(most, writer)]
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
    text = f"{who} {held} {units.duration(most.end - most.begin)} and {records:,} offsets: {reader} on {where}{still}"
    parties += tuple(dict.fromkeys(party for each in readers for party in client_parties(context, *each)))
    parties += tuple(Party("topic", topic) for topic in dict.fromkeys(topic for topic, _ in places))
    numbers = {
        "held_ns": sum(longest.values()), "longest_ns": most.end - most.begin, "holds": len(longest),
        "offsets": records, "offset": most.place[2], "readers": len(readers), "partitions": len(places),
        "producer_id": None if writer is None else writer.producer_id,
    }  # fmt: skip
    return OPEN_TRANSACTIONS.found(
        given, {"first": min(hold.begin for hold in holds), "packet": min(hold.packet for hold in holds)}, text,
        sum(longest.values()), numbers,
        (("sections", "transactions"), *(client_option(context, writer.client_id) if writer else ())),
        end=None if is_open else max(hold.end for hold in holds), parties=parties, remedy=_SOONER + _ABORT * is_open,
    )  # fmt: skip


_SOONER = (
    "Commit or abort sooner: fewer records in a transaction, no waits within it. `transaction.timeout.ms` bounds what "
    "a dead producer costs."
)
_ABORT = " `kafka-transactions.sh abort` ends one that hangs."
OPEN_TRANSACTIONS = Signature(
    "open_transaction",
    "an open transaction holds back readers of committed records",
    "Fetch responses for read_committed have a last stable offset that stays at the first record batch of a "
    "transaction without EndTxn or marker.",
    "transaction.timeout.ms, the commit interval of the producer",
    _SOONER + _ABORT,
    f"the last stable offset stays for {_LEAST_NS // 1_000_000_000} s. If the producer was not captured, the readers "
    "are named alone. Time lost: from the reader's first such Fetch until the answer to EndTxn, or the marker.",
    _findings,
    counts=(_HELD, _WRITTEN, _STABLE),
    on_request=True,
    from_all=True,
    label="held back",
)  # fmt: skip
