"""What the engine hands to the reports: batches of rows, and at the end what the numbers in them mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from kafkatap.dissector.dtypes import ERROR_COUNT, RESULT
from kafkatap.kernels.arrays import taken
from kafkatap.kernels.decorator import record_dtype

from .counting.connection_counts import ConnectionCounts, count_connections

Array = np.ndarray[Any, np.dtype[Any]]

PROTOCOLS = ("unknown", "kafka", "tls", "foreign")
P_UNKNOWN, P_KAFKA, P_TLS, P_FOREIGN = range(4)

#: One TCP connection. Strings are numbers of the Strings table (-1: null), addresses numbers of the address table.
CONNECTION_ROW = record_dtype(
    ("connection", "i8"),
    ("first", "i8"),  # ns since the epoch
    ("last", "i8"),
    ("handshake_rtt_ns", "i8"),  # SYN to the ACK of the SYN-ACK; -1: not seen
    ("packets", "i8"),
    ("client_bytes", "i8"),  # TCP payload that the client sent, each byte once
    ("broker_bytes", "i8"),
    ("client_retransmitted_bytes", "i8"),
    ("broker_retransmitted_bytes", "i8"),
    ("client_retransmitted_packets", "i8"),
    ("broker_retransmitted_packets", "i8"),
    ("client_out_of_order", "i8"),
    ("broker_out_of_order", "i8"),
    ("client_gap_bytes", "i8"),
    ("broker_gap_bytes", "i8"),
    ("client_gaps", "i4"),
    ("broker_gaps", "i4"),
    ("client_zero_windows", "i4"),
    ("broker_zero_windows", "i4"),
    ("client_ip", "i4"),
    ("broker_ip", "i4"),
    ("client_port", "i4"),
    ("broker_port", "i4"),
    ("client_id", "i4"),  # the last one seen
    ("software", "i4"),
    ("software_version", "i4"),
    ("sasl_mechanism", "i4"),
    ("protocol", "u1"),  # P_...
    ("orientation_known", "u1"),  # 1: it is known which end is the broker
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Finished rows: EXCHANGE and RESULT records. A result's exchange is in the same batch, and the results of one
    exchange follow each other. In a run that asks for no topics, `results` holds non-zero error codes only. `marks`
    (uint64, beside the exchanges): what inspectors found in the messages; None in a run without any. `topics`:
    EXCHANGE_TOPIC records, what the requests of these exchanges are about; None in a run that asks for no topics.
    `provisional` (uint8, beside the exchanges): 1 + the outcome under which an earlier, provisional row was given, 0
    where there was none; None in a run without any."""

    exchanges: Array
    results: Array
    marks: Array | None = None
    topics: Array | None = None
    provisional: Array | None = None

    def picked(self, mask: Array) -> Batch:
        """Copies of the exchanges in `mask` (bool, beside them), with all that is theirs."""
        exchanges = taken(self.exchanges, np.flatnonzero(mask))
        numbers, topics = exchanges["exchange"], self.topics
        if topics is not None:
            topics = taken(topics, np.flatnonzero(np.isin(topics["exchange"], numbers)))
        return Batch(
            exchanges,
            taken(self.results, np.flatnonzero(np.isin(self.results["exchange"], numbers))),
            None if self.marks is None else self.marks[mask],
            topics,
            None if self.provisional is None else self.provisional[mask],
        )


def as_results(topics: Array) -> Array:
    """EXCHANGE_TOPIC rows as RESULT rows that say nothing else."""
    rows = np.zeros(len(topics), RESULT)
    for name in ("exchange", "topic", "topic_id"):
        rows[name] = topics[name]
    return rows


class Names(Protocol):
    """What the numbers in rows mean. It may grow while batches are added."""

    @property
    def strings(self) -> Sequence[bytes | None]: ...
    @property
    def addresses(self) -> Sequence[str]: ...
    @property
    def topic_names(self) -> Mapping[int, int]: ...


#: `FileInfo.kind` of what is no file: network interfaces, whose names are its path.
LIVE = "live"


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One capture file as it was read. `first_packet` is its first packet's number over the whole input."""

    path: str
    kind: str
    first_packet: int
    packets: int
    bytes: int
    link_types: tuple[str, ...] = ()
    first: int | None = None  # ns since the epoch
    last: int | None = None
    drops: int | None = None  # packets lost while capturing, where the file tells
    damage: str | None = None
    duplicates: int = 0  # packets that a file before it holds too, with equal times and bytes


@dataclass(frozen=True, slots=True)
class Context:
    """What is known at the end beside the counts: names, connections, files, the ledger.

    `ledger` has a section for packets, payload bytes, requests and responses; the parts of a section (all but "total")
    sum to its "total". `known_versions`: the lowest and highest version of each API's requests that can be decoded, by
    api_key, None where it is not known. `encrypted_share` is the part of the TCP payload that was TLS, 0 to 1.
    `connections`: rows for tables; a run that makes none has only `counted`, their counts.
    """

    strings: Sequence[bytes | None] = ()
    addresses: Sequence[str] = ()
    topic_names: Mapping[int, int] = field(default_factory=dict)
    connections: Array = field(default_factory=lambda: np.zeros(0, CONNECTION_ROW))
    files: Sequence[FileInfo] = ()
    ledger: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    first: int | None = None  # ns since the epoch
    last: int | None = None
    packets: int = 0
    encrypted_share: float = 0.0
    known_versions: Mapping[int, tuple[int, int]] | None = None
    not_captured: int = 0  # bytes of TCP payload that the snap length cut off
    interrupted: bool = False  # reading ended before the input did, as the user wanted

    def __repr__(self) -> str:
        files = f"{len(self.files):,} file{'' if len(self.files) == 1 else 's'}"
        return f"<Context of {files}, {self.packets:,} packets, {len(self.strings):,} strings>"

    counted: ConnectionCounts | None = None

    @property
    def connection_counts(self) -> ConnectionCounts:
        """What reports say of the connections."""
        return count_connections(self.connections) if self.counted is None else self.counted

    def text(self, number: int) -> str | None:
        """A string from the wire by its number, None for null; not escaped."""
        value = self.strings[number] if number >= 0 else None
        return None if value is None else value.decode("utf-8", "replace")

    def topic(self, topic: int, topic_id: int) -> str | None:
        """A topic's name; its id in Kafka's 22-character form where no name was seen; None where there is neither."""
        if topic < 0 and topic_id >= 0:
            topic = self.topic_names.get(topic_id, -1)
            if topic < 0:
                return uuid_text(self.strings[topic_id])
        return self.text(topic)

    def address(self, number: int) -> str | None:
        return self.addresses[number] if number >= 0 else None


def error_counts(results: Array) -> Array:
    """The non-zero error codes of RESULT rows: ERROR_COUNT (n,), ascending by exchange and code."""
    failed = results[results["error_code"] != 0]
    key = failed["exchange"] * 65_536 + (failed["error_code"].astype(np.int64) + 32_768)
    distinct, counts = np.unique(key, return_counts=True)
    rows = np.zeros(len(distinct), ERROR_COUNT)
    rows["exchange"] = distinct >> 16
    rows["code"] = (distinct & 65_535) - 32_768
    rows["count"] = counts
    return rows


def uuid_text(value: bytes | None) -> str | None:
    """A 16-byte id as Kafka prints it: 22 characters of URL-safe base64."""
    if value is None:
        return None
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(value).rstrip(b"=").decode()


def endpoint(address: str | None, port: int) -> str:
    """`10.0.0.1:9092`, `[::1]:9092`."""
    if address is None:
        return f"?:{port}"
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
