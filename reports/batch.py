"""The input of reports: batches of rows, and a context with the meaning of the numbers in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from kafkatap.dissector.dtypes import ERROR_COUNT, EXCHANGE, EXCHANGE_STRINGS, NO_INT32, RESULT, RESULT_STRINGS
from kafkatap.kernels.arrays import is_among, joined, taken, value_counts
from kafkatap.kernels.column_spec import ADDRESS, STRING, fields_of
from kafkatap.kernels.decorator import record_dtype

from .connection_columns import COLUMNS, CONNECTION_ROW

if TYPE_CHECKING:
    from .hosts.host_table import HostTable

Array = np.ndarray[Any, np.dtype[Any]]

#: Columns of rows, and of the keys of counts, that hold numbers of strings, and of addresses.
STRING_COLUMNS = frozenset((*EXCHANGE_STRINGS, *RESULT_STRINGS, *fields_of(COLUMNS, STRING)))
ADDRESS_COLUMNS = frozenset(fields_of(COLUMNS, ADDRESS))
#: A dense lookup table is used for up to this many numbers for each exchange.
_DENSE = 16
#: Exchanges, results and facts that make a batch of smaller ones.
_GATHERED = 1 << 14

#: A response time that was estimated from sizes and times of TLS records alone. Addresses are numbers of the context.
ESTIMATE = record_dtype(
    ("connection", "i8"),  # its key
    ("at", "i8"),  # the last byte of the request, ns since the epoch
    ("ns", "i8"),  # from there to the first byte of the response
    ("client_ip", "i4"),
    ("broker_ip", "i4"),
    ("client_port", "i4"),
    ("broker_port", "i4"),
    ("request_bytes", "i4"),  # of application data, estimated
    ("response_bytes", "i4"),
)


class Batch(NamedTuple):
    """Finished EXCHANGE and RESULT records.

    `results`: a result's exchange is in the same batch, and the results of an exchange are adjacent. Without topics,
    `results` has only non-zero error codes.
    `marks`: uint64, one for each exchange: matches that inspectors found in the messages, or None.
    `topics`: EXCHANGE_TOPIC records, the topics of the requests, or None in a run without topics.
    `provisional`: uint8, one for each exchange, or None. 0: the exchange had no provisional row. Otherwise that of
    its LINK: the outcome in that row, and who closed the connection.
    `facts`: FACT rows in order of their exchanges, or None in a run that collects none.
    `estimates`: ESTIMATE rows, of encrypted connections; they belong to no exchange. None without any.
    `tokens`: bare SASL tokens of clients and their answers as a batch of their own, with facts; they are no exchanges.
    None without any, and in a run that collects no facts of them.
    `left_out`: bool, one for each result: it is on a topic, partition or group that the selection leaves out. None: no
    result is.
    """

    exchanges: Array
    results: Array
    marks: Array | None = None
    topics: Array | None = None
    provisional: Array | None = None
    facts: Array | None = None
    estimates: Array | None = None
    tokens: Batch | None = None
    left_out: Array | None = None

    @property
    def counted_results(self) -> Array:
        """The results on what is selected, which reports count."""
        return self.results if self.left_out is None else self.results[~self.left_out]

    def picked(self, mask: Array) -> Batch:
        """A copy of the exchanges in `mask` (bool, one for each exchange) with all their rows. Estimates, which belong
        to no exchange, stay."""
        exchanges = taken(self.exchanges, np.flatnonzero(mask))
        numbers, topics, facts = exchanges["exchange"], self.topics, self.facts
        if topics is not None:
            topics = taken(topics, np.flatnonzero(is_among(topics["exchange"], numbers)))
        if facts is not None:
            facts = taken(facts, np.flatnonzero(is_among(facts["exchange"], numbers)))
        kept = np.flatnonzero(is_among(self.results["exchange"], numbers))
        return Batch(
            exchanges,
            taken(self.results, kept),
            None if self.marks is None else self.marks[mask],
            topics,
            None if self.provisional is None else self.provisional[mask],
            facts,
            self.estimates,
            self.tokens,
            None if self.left_out is None else self.left_out[kept],
        )


def gathered(batches: Iterable[Batch]) -> Iterator[Batch]:
    """The same rows in fewer batches: those of many small captures. Estimates do not wait, and tokens stay with the
    exchanges of their batch."""
    waiting: list[Batch] = []
    rows = 0
    for batch in batches:
        is_alone = batch.tokens is not None
        if batch.estimates is not None and not is_alone:
            yield batch.picked(np.zeros(len(batch.exchanges), bool))
            batch = batch._replace(estimates=None)
        if len(batch.exchanges) and not is_alone:
            waiting.append(batch)
            rows += sum(len(part) for part in (batch.exchanges, batch.results, batch.facts) if part is not None)
        if waiting and (is_alone or rows >= _GATHERED):
            yield _as_one(waiting)
            waiting, rows = [], 0
        if is_alone:
            yield batch
    if waiting:
        yield _as_one(waiting)


def _as_one(batches: Sequence[Batch]) -> Batch:
    """Batches without estimates and tokens as one."""
    if len(batches) == 1:
        return batches[0]

    def rows(name: str) -> Array | None:
        parts = [getattr(batch, name) for batch in batches]
        dtype = next((part.dtype for part in parts if part is not None), None)
        return None if dtype is None else joined([part for part in parts if part is not None], dtype)

    def beside(name: str, of: str) -> Array | None:
        """What has one value for each row, 0 in batches without it."""
        parts = [(getattr(batch, name), getattr(batch, of)) for batch in batches]
        dtype = next((part.dtype for part, _ in parts if part is not None), None)
        if dtype is None:
            return None
        return np.concatenate([np.zeros(len(own), dtype) if part is None else part for part, own in parts])

    return Batch(
        joined([batch.exchanges for batch in batches], EXCHANGE), joined([batch.results for batch in batches], RESULT),
        beside("marks", "exchanges"), rows("topics"), beside("provisional", "exchanges"), rows("facts"),
        left_out=beside("left_out", "results"),
    )  # fmt: skip


def rows_of(numbers: Array, wanted: Array) -> Array:
    """The index in `numbers` (distinct) of each wanted exchange number: int64 (n,), -1 if it is missing."""
    if not len(numbers):
        return np.full(len(wanted), -1, np.int64)
    low, high = int(numbers.min()), int(numbers.max())
    if high - low < _DENSE * len(numbers):
        places = np.full(high - low + 2, -1, np.int64)
        places[numbers - low] = np.arange(len(numbers))
        found: Array = places[np.where((wanted >= low) & (wanted <= high), wanted - low, -1)]
        return found
    order = np.argsort(numbers, kind="stable")
    at = order[np.minimum(np.searchsorted(numbers[order], wanted), len(numbers) - 1)]
    return np.where(numbers[at] == wanted, at, -1).astype(np.int64)


def as_results(topics: Array) -> Array:
    """EXCHANGE_TOPIC rows as RESULT rows that have only a topic."""
    rows = np.zeros(len(topics), RESULT)
    rows["partition"], rows["name"], rows["error_message"] = NO_INT32, -1, -1
    for name in ("exchange", "topic", "topic_id"):
        rows[name] = topics[name]
    return rows


class Names(Protocol):
    """The meaning of the numbers in rows. The tables may grow while batches are added."""

    @property
    def strings(self) -> Sequence[bytes | None]: ...
    @property
    def addresses(self) -> Sequence[str]: ...
    @property
    def topic_names(self) -> Mapping[int, int]: ...
    @property
    def hosts(self) -> HostTable | None: ...


#: `FileInfo.kind` of a live capture. Its `path` is the names of the interfaces.
LIVE = "live"


class FileInfo(NamedTuple):
    """One capture file. `first_packet` is the number of its first packet, counted over all files. `capture`: its
    `captures.identity`, 0 if nobody needs it. `captured_bytes`: of its packets; `empty_packets`: those without
    any; 0 if nobody needs them. `names`: addresses and the names that blocks of a pcapng give them."""

    path: str
    kind: str
    first_packet: int
    packets: int
    bytes: int
    link_types: tuple[str, ...] = ()
    first: int | None = None  # ns since the epoch
    last: int | None = None
    drops: int | None = None  # packets dropped during capture, if the file records them
    damage: str | None = None
    duplicates: int = 0  # packets in it that were captured twice, in this file or in another one
    capture: int = 0
    captured_bytes: int = 0
    empty_packets: int = 0
    names: tuple[tuple[str, str], ...] = ()


class ConnectionTotals(Protocol):
    """Counts of TCP connections. `counting.connection_counts.ConnectionCounts` implements it.

    `table`: a CountTable with a row for each combination of client, address, software and protocol. `tls`: a CountTable
    of TLS connections and certificates; `ports`: one of what the ports of brokers spoke.
    """

    @property
    def table(self) -> Any: ...
    @property
    def tls(self) -> Any: ...
    @property
    def ports(self) -> Any: ...
    def total(self, value: str) -> int: ...
    def of_protocol(self, protocol: int) -> int: ...
    def median_rtts(self, groups: Array, count: int) -> list[int | None]: ...


class Context(NamedTuple):
    """Facts about a run besides its counts: names, connections, files and the ledger.

    `ledger` has a section for packets, payload bytes, requests, responses, and packets in tunnels if there are any. The
    parts of a section, without "total", add up to its "total". `known_versions`: by api_key, the ranges of
    request versions that can be decoded, or None if that is unknown. `encrypted_share`: share of the TCP payload that
    is TLS and was not decrypted, 0 to 1. `connections`: rows for tables. A run without tables has no rows; then
    `counted` has the counts of connections.
    """

    strings: Sequence[bytes | None] = ()
    addresses: Sequence[str] = ()
    topic_names: Mapping[int, int] = MappingProxyType({})
    connections: Array = np.zeros(0, CONNECTION_ROW)
    files: Sequence[FileInfo] = ()
    ledger: Mapping[str, Mapping[str, int]] = MappingProxyType({})
    first: int | None = None  # ns since the epoch
    last: int | None = None
    packets: int = 0
    encrypted_share: float = 0.0
    known_versions: Mapping[int, Sequence[tuple[int, int]]] | None = None
    not_captured: int = 0  # bytes of TCP payload that the snap length cut off
    interrupted: bool = False  # the user interrupted the reading
    counted: ConnectionTotals | None = None
    left_out_connections: int = 0  # ended first, and are neither in `connections` nor in `counted`
    options: tuple[tuple[str, str], ...] = ()  # those of `commands.KEPT` that the user set, with their values
    hosts: HostTable | None = None  # names of addresses

    @property
    def packet_places(self) -> None:
        """Only a run has them."""

    def __repr__(self) -> str:
        files = f"{len(self.files):,} file{'' if len(self.files) == 1 else 's'}"
        return f"<Context of {files}, {self.packets:,} packets, {len(self.strings):,} strings>"

    def text(self, number: int) -> str | None:
        """A string from the wire by its number, unescaped. None for null."""
        value = self.strings[number] if number >= 0 else None
        return None if value is None else value.decode("utf-8", "replace")

    def topic(self, topic: int, topic_id: int) -> str | None:
        """The name of a topic, or else its id in Kafka's 22-character form, or else None."""
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
    distinct, counts = value_counts(key)
    rows = np.zeros(len(distinct), ERROR_COUNT)
    rows["exchange"] = distinct >> 16
    rows["code"] = (distinct & 65_535) - 32_768
    rows["count"] = counts
    return rows


def uuid_text(value: bytes | None) -> str | None:
    """A 16-byte id in Kafka's form: 22 characters of URL-safe base64. The name in place of ids beyond a limit stays."""
    if value is None:
        return None
    if len(value) != 16:
        return value.decode("utf-8", "replace")
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(value).rstrip(b"=").decode()


def id_of_text(text: str) -> bytes:
    """The id of its text in Kafka's form: the reverse of `uuid_text`."""
    from base64 import urlsafe_b64decode
    from binascii import Error

    try:
        value = urlsafe_b64decode(text + "==") if len(text) == 22 else b""
    except (Error, ValueError):
        value = b""
    return value if uuid_text(value) == text else text.encode()


def endpoint(address: str | None, port: int) -> str:
    """`10.0.0.1:9092`, `[::1]:9092`."""
    if address is None:
        return f"?:{port}"
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
