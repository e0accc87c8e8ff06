"""Topics: who writes and reads each, and how its record batches are made.

`finding` names what is unusual, with its evidence, in this order: damaged batches, timestamps that are far off, old
message formats, small batches, no or poor compression.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import median

from kafkatap.dissector.kafka.releases import removed_in
from kafkatap.kernels.arrays import dict_rows

from .. import units
from ..batch import Array, Context
from ..counting.count_table import EMPTY, MAX
from ..model import Column, ReportTable, in_columns
from ..section_parts.batch_copies import COPIES, DEDUPLICATED, what_became
from ..section_parts.section import Section, SectionInput
from .reader_counts import POSITIONS
from .topic_counts import (
    BATCHES,
    COUNTS,
    FETCHED,
    OFFSETS,
    PRODUCED,
    READS,
    REPLICATES,
    REQUESTS,
    SAMPLES,
    WRITES,
    read,
)  # fmt: skip
from .topic_rows import TopicNames

#: APIs without which a column is not known.
_PRODUCES, _FETCHES = (0,), (1,)
COLUMNS = (
    Column("topic", "topic", "text", "name of the topic, or its id if no message has its name", of="name"),
    Column("partitions", "parti-\ntions", "count", "partitions in requests and responses",
           of=lambda t: len(t.partitions)),
    Column("producers", "pro-\nducers", "count", "clients (client_id and address) that send Produce", apis=_PRODUCES,
           of=lambda t: len(t.clients[WRITES])),
    Column("consumers", "con-\nsumers", "count", "clients that send Fetch or ShareFetch, without followers",
           apis=_FETCHES, of=lambda t: len(t.clients[READS])),
    Column("in_bytes", "bytes\nin", "bytes", "record batches in Produce requests", apis=_PRODUCES,
           of=lambda t: t.bytes[WRITES]),
    Column("in_records", "records\nin", "count", "records in Produce requests (* in a note: some are not countable)", 1,
           apis=_PRODUCES, of=lambda t: t.records[WRITES]),
    Column("appended_records", "appended", "count", "of them, records that were acknowledged; those of a retry that "
           "the broker knew count once; empty: not known, as some were sent with acks=0", 2, apis=_PRODUCES,
           of=lambda t: None if t.is_unanswered else t.appended),
    Column("refused_records", "refused", "count", "of them, records in batches that were answered with an error code",
           1, apis=_PRODUCES, of="refused"),
    Column("resent_records", "resent", "count", "of them, records in batches that had been sent before", 1,
           apis=_PRODUCES, of="resent"),
    Column("out_bytes", "bytes\nout", "bytes", "record batches in responses to consumers", 1, apis=_FETCHES,
           of=lambda t: t.bytes[READS]),
    Column("out_records", "records\nout", "count", "records in responses to consumers, without markers of transactions",
           2, apis=_FETCHES, of=lambda t: t.records[READS]),
    Column("replicated_bytes", "replicated", "bytes", "record batches in responses to followers", 4, apis=_FETCHES,
           of=lambda t: t.bytes[REPLICATES]),
    Column("produces", "Produce", "count", "Produce requests with the topic", 3, apis=_PRODUCES,
           of=lambda t: t.requests[WRITES]),
    Column("batches_per_request", "batches a\nrequest", "number", "record batches of the topic in a Produce", 2,
           of=lambda t: _ratio(t.batches[WRITES], t.requests[WRITES])),
    Column("records_per_batch", "records\na batch", "number", "records in a batch of a Produce",
           of=lambda t: _ratio(t.records[WRITES], t.batches[WRITES] - t.unknown[WRITES])),
    Column("batch_mean_bytes", "batch\nmean", "bytes", "bytes of a batch of a Produce, mean",
           of=lambda t: t.bytes[WRITES] // t.batches[WRITES] if t.batches[WRITES] else None),
    Column("codecs", "codecs", "text", "compression of produced batches, by bytes; of fetched ones if none is produced",
           of=lambda t: _codecs(t) or None),
    Column("ratio", "ratio", "number", "decompressed bytes to bytes, of the sampled batches", 1,
           of=lambda t: _ratio(t.decompressed, t.sampled_bytes)),
    Column("sampled", "sam-\npled", "count",
           "produced batches that were decompressed and checked (1 of 64)", 3, apis=_PRODUCES),
    Column("damaged", "bad\nCRC", "count", "sampled batches with a wrong checksum", 2, apis=_PRODUCES),
    Column("magic", "magic", "text", "versions of the batch format", 3,
           of=lambda t: ", ".join(map(str, sorted(set().union(*t.magics.values())))) or None),
    Column("far_timestamps", "far\ntimes", "count", "produced batches with a timestamp an hour or more off", 3,
           apis=_PRODUCES, of=lambda t: t.far_past + t.far_future),
    Column("delay_p50_ns", "delay\np50", "ns", "from a Produce request to the first response with its records, median",
           1, of=lambda t: int(median(t.delays)) if t.delays else None),
    Column("delays", "delays", "count", "batches of which the delay is measured (at most 1 of 16)", 9,
           apis=(*_PRODUCES, *_FETCHES), of=lambda t: len(t.delays)),
    Column("finding", "finding", "text", "what is unusual", of=lambda t: "; ".join(findings(t)) or None),
)  # fmt: skip
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: Below these sizes a batch is small. Fewer batches than SMALL_LEAST, or a slow pace of them, make no finding.
SMALL_RECORDS, SMALL_BYTES, SMALL_LEAST, SMALL_PER_SECOND = 2.0, 1024, 20, 5.0
#: Uncompressed bytes of a topic from which on that is a finding, and the ratio from which on compression helps.
UNCOMPRESSED_BYTES, GOOD_RATIO = 1 << 20, 1.1
#: From these versions of Fetch on, readers get batches of magic 1 and 2.
_FETCH_MAGIC_1, _FETCH_MAGIC_2 = 2, 4
_FETCH = 1


class _Topic:
    """Sums of one topic."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.partitions: set[int] = set()
        self.clients: dict[int, set[tuple[int, int]]] = defaultdict(set)  # by role
        self.requests: dict[int, int] = defaultdict(int)
        self.bytes: dict[int, int] = defaultdict(int)
        self.batches: dict[int, int] = defaultdict(int)
        self.records: dict[int, int] = defaultdict(int)
        self.unknown: dict[int, int] = defaultdict(int)
        self.codecs: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))  # bytes by role and codec
        self.magics: dict[int, set[int]] = defaultdict(set)
        self.old_readers: dict[int, str] = {}  # a client by its version of Fetch
        self.old_writers: dict[int, str] = {}  # a client by magic
        self.appended = self.refused = self.resent = 0  # records of Produce
        self.is_unanswered = False  # by acks=0
        self.sampled = self.damaged = self.sampled_bytes = self.decompressed = 0
        self.far_past = self.far_future = self.farthest = 0
        self.delays: list[int] = []
        self.first, self.last = 2**63, 0


def tables(given: SectionInput) -> tuple[ReportTable, ...]:
    """Rows by bytes in both directions."""
    topics: dict[str | None, _Topic] = defaultdict(_Topic)
    names = TopicNames(given.context)
    _add_requests(given, names, topics)
    _add_batches(given, names, topics)
    for row in given.rows(SAMPLES.name):
        t = topics[names[row]]
        t.sampled += row["batches"]
        t.damaged += row["damaged"]
        t.sampled_bytes += row["bytes"]
        t.decompressed += row["decompressed"]
    for form in (OFFSETS, POSITIONS):
        for row in given.rows(form.name):
            if row["partition"] >= 0:
                topics[names[row]].partitions.add(row["partition"])
    _add_copies(given, names, topics)
    _add_delays(given.events("topics"), names, topics)
    ordered = sorted(topics.items(), key=lambda item: (-sum(item[1].bytes.values()), str(item[0])))
    for name, topic in ordered:
        topic.name = name
    rows = in_columns(COLUMNS, (topic for name, topic in ordered if name is not None))
    sampled = sum(t.sampled for t in topics.values())
    batches = sum(t.batches[WRITES] for t in topics.values())
    notes = [
        f"ratio, bad CRC: of a sample of {sampled:,} of {batches:,} produced batches.",
        "delay: from the Produce request to the first Fetch response to a consumer that has the records, sampled.",
    ]
    unknown = sum(sum(t.unknown.values()) for t in topics.values())
    if unknown:
        notes[1] = f"records: without those in {unknown:,} compressed message sets (magic 0 and 1)."
    return (ReportTable("topics", "Topics", COLUMNS, rows, tuple(notes), empty="no topics in Produce or Fetch"),)


def _add_requests(given: SectionInput, names: TopicNames, topics: dict[str | None, _Topic]) -> None:
    for row in given.rows(REQUESTS.name):
        t, role = topics[names[row]], row["role"]
        t.clients[role].add((row["client_id"], row["client_ip"]))
        t.requests[role] += row["requests"]
        t.first, t.last = min(t.first, row["first"]), max(t.last, row["last"])
        t.is_unanswered |= role == WRITES and row["acks"] == 0
        version = row["api_version"]
        if role == READS and 0 <= version < _FETCH_MAGIC_2:
            t.old_readers[version] = _who(given.context, row)


def _add_copies(given: SectionInput, names: TopicNames, topics: dict[str | None, _Topic]) -> None:
    """Add the records of batches that were sent more than once."""
    keys, values = given.keys(COPIES.name), given.values(COPIES.name)
    chosen, fates = what_became(values, keys)
    columns = {name: keys[name][chosen] for name in ("topic", "topic_id")}
    columns |= {name: values[name][chosen] for name in ("records", "answered", "copies")}
    for row, fate in zip(dict_rows(columns), fates, strict=True):
        topic = topics[names[row]]
        topic.resent += row["records"] * (row["copies"] - 1)
        if fate == DEDUPLICATED:
            topic.appended -= row["records"] * max(row["answered"] - 1, 0)


def _add_batches(given: SectionInput, names: TopicNames, topics: dict[str | None, _Topic]) -> None:
    for row in given.rows(BATCHES.name):
        t, role = topics[names[row]], row["role"]
        t.clients[role].add((row["client_id"], row["client_ip"]))
        for name in ("bytes", "batches", "records", "unknown"):
            getattr(t, name)[role] += row[name]
        t.codecs[role][row["codec"]] += row["bytes"]
        if row["magic"] >= 0:
            t.magics[role].add(row["magic"])
        if role == WRITES:
            t.appended += row["acknowledged"]
            t.refused += row["refused"]
            t.far_past += row["far_past"]
            t.far_future += row["far_future"]
            if row["farthest"] != EMPTY[MAX]:
                t.farthest = max(t.farthest, row["farthest"])
            if 0 <= row["magic"] < 2:
                t.old_writers[row["magic"]] = _who(given.context, row)


def _add_delays(events: Array, names: TopicNames, topics: dict[str | None, _Topic]) -> None:
    """Pair each sampled batch that was produced with the first time that it was fetched."""
    waiting: dict[tuple[str | None, int, int], int] = {}
    rows = PRODUCED.view.of(events)
    columns = [rows[name].tolist() for name in ("kind", "time", "topic", "topic_id", "partition", "base_offset")]
    for kind, time, topic, topic_id, partition, offset in zip(*columns, strict=True):
        name = names[{"topic": topic, "topic_id": topic_id}]
        place = name, partition, offset
        if kind == PRODUCED:
            waiting.setdefault(place, time)
        elif kind == FETCHED:
            produced = waiting.pop(place, None)
            if produced is not None:
                topics[name].delays.append(time - produced)


def _who(context: Context, row: Mapping[str, int]) -> str:
    return f"{context.text(row['client_id'])} ({context.address(row['client_ip'])})"


def _ratio(a: int, b: int) -> float | None:
    return a / b if b else None


def codec_name(number: int) -> str:
    """`zstd`, `codec 6`, or `(other)`."""
    return "(other)" if number < 0 else CODECS[number] if number < len(CODECS) else f"codec {number}"


def _codecs(t: _Topic) -> str:
    """`zstd 97.1 %, none 2.9 %`, or one name."""
    found = t.codecs[WRITES] or t.codecs[READS] or t.codecs[REPLICATES]
    total = sum(found.values())
    if len(found) == 1:
        return codec_name(next(iter(found)))
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{codec_name(codec)} {units.share(size / total if total else 0)}" for codec, size in ordered)


def findings(t: _Topic) -> list[str]:
    """What is unusual about a topic, with evidence."""
    found = []
    if t.damaged:
        found.append(f"{t.damaged:,} of {t.sampled:,} sampled batches with a wrong checksum")
    far = [f"{n:,} batches stamped in the {when}" for n, when in ((t.far_past, "past"), (t.far_future, "future")) if n]
    if far:
        found.append(f"{' and '.join(far)}, up to {units.duration(t.farthest * 1_000_000)} off")
    found += _old_formats(t)
    batches, sized = t.batches[WRITES], t.batches[WRITES] - t.unknown[WRITES]
    seconds = max((t.last - t.first) / 1e9, 1.0)
    if sized >= SMALL_LEAST and batches / seconds >= SMALL_PER_SECOND:
        each, size = t.records[WRITES] / sized, t.bytes[WRITES] // batches
        if each < SMALL_RECORDS and size < SMALL_BYTES:
            found.append(
                f"{batches / seconds:,.0f} batches/s of {each:.1f} records, {units.size(size)}: linger.ms too low?"
            )
    plain, total = t.codecs[WRITES][0], t.bytes[WRITES]
    if plain >= UNCOMPRESSED_BYTES and 2 * plain > total:
        found.append(f"{units.size(plain)} uncompressed")
    elif t.sampled_bytes and not plain and t.decompressed < GOOD_RATIO * t.sampled_bytes:
        found.append(f"compression saves {units.share(1 - t.sampled_bytes / max(t.decompressed, 1))}")
    return found


def _old_formats(t: _Topic) -> list[str]:
    """Batches in old formats, and readers for which the broker converts newer ones."""
    found = []
    for magic, who in sorted(t.old_writers.items()):
        removed = removed_in(0, 2) or "4.0"
        found.append(f"{who} writes magic {magic}, which Kafka {removed.split()[0]} refuses")
    newest = max(t.magics[WRITES] or t.magics[READS], default=-1)
    for version, who in sorted(t.old_readers.items()):
        readable = 0 if version < _FETCH_MAGIC_1 else 1
        if newest > readable:
            found.append(f"down-conversion: {who} reads with Fetch {version} (magic {readable})")
    return found


SECTION = Section(
    "topics", "Which topics are written and read, and are their batches small, poorly compressed or damaged?",
    columns={"topics": COLUMNS}, tables=tables, counts=COUNTS, read=read,
    made_of=("section_parts.batch_copies:READING",),
)  # fmt: skip
