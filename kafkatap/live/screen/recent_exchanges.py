"""The last exchanges, for the screen: two rings of rows.

Adding a batch costs two copies of memory. Names are looked up only for shown rows, and when the engine is about to
change its numbers (`resolve_names`): then the rows get numbers of a table of names here, -2 and below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.dtypes import (
    ANSWERED,
    EXCHANGE,
    EXCHANGE_STRINGS,
    IN_FLIGHT,
    NO_INT32,
    NO_TIME,
    ORPHAN_RESPONSE,
    OUTCOMES,
    RESPONSE_LOST,
    RESULT,
    UNANSWERED,
    WAITS,
)
from kafkatap.kernels.arrays import taken
from kafkatap.reports.batch import (
    ADDRESS_COLUMNS,
    STRING_COLUMNS,
    Array,
    Batch,
    Context,
    as_results,
    endpoint,
    rows_of,
    uuid_text,
)
from kafkatap.reports.counting.percentiles import percentile
from kafkatap.reports.counting.rollup import api_label, maybe
from kafkatap.reports.sections.error_codes import error_label

from ...engine.selection import Selection, Selector
from ..provisional_rows import without_confirmed
from ..sink import Sink
from .breakdown import Scope

if TYPE_CHECKING:
    from kafkatap.reports.hosts.host_table import HostTable

    from ...engine.engine import Engine

#: Exchanges that are kept, and result rows: 12 MB and 3 MB.
CAPACITY = 1 << 16
#: The first own number of a name; the next ones are below it. -1 is null.
_FIRST_OWN = -2


@dataclass(frozen=True, slots=True)
class Message:
    """One exchange. Times are ns since the epoch, durations ns (None: not answered), texts as on the wire."""

    at: int  # the request's first byte, or the first byte of an orphan response
    exchange: int
    connection: int
    client: str  # address and port
    broker: str
    client_id: str | None
    api: str
    api_version: int
    correlation_id: int
    outcome: str  # one of OUTCOMES
    request_bytes: int | None
    response_bytes: int | None
    broker_ns: int | None
    hol_wait_ns: int | None
    throttle_wait_ns: int | None
    total_ns: int | None
    throttle_time_ms: int | None
    waits: bool  # whether its API waits for data or for other members
    error_codes: tuple[tuple[str, int], ...]  # name and count, the most frequent first
    topics: tuple[str, ...]  # if known
    waited_ns: int | None = None  # of a request that waits: how long, beyond what its broker may hold it
    client_host: str | None = None  # names of the addresses
    broker_host: str | None = None


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection in the ring. Broker times exclude requests that wait for something else."""

    connection: int
    client: str
    broker: str
    client_id: str | None  # of its last request
    requests: int
    failed: int  # exchanges with a non-zero error code
    throttled: int
    unanswered: int
    broker_p50: int | None
    broker_p99: int | None
    last: int  # ns since the epoch
    client_host: str | None = None
    broker_host: str | None = None


class Ring:
    """The last `capacity` records. `rows` are not sorted; `newest` sorts them."""

    def __init__(self, dtype: np.dtype[Any], capacity: int) -> None:
        self.dtype, self.capacity = dtype, capacity
        self.bytes: Array = np.zeros(capacity * dtype.itemsize, np.uint8)
        self.head = 0  # the place of the next row
        self.filled = 0

    @property
    def rows(self) -> Array:
        """A view, good until the next `put`."""
        rows: Array = self.bytes.view(self.dtype)[: self.filled]
        return rows

    def put(self, rows: Array) -> None:
        size, rows = self.dtype.itemsize, rows[-self.capacity :]
        fits = min(len(rows), self.capacity - self.head)
        for part, at in ((rows[:fits], self.head), (rows[fits:], 0)):
            self.bytes[at * size : (at + len(part)) * size] = part.view(np.uint8)
        self.filled = min(self.filled + len(rows), self.capacity)
        self.head = (self.head + len(rows)) % self.capacity

    def newest(self, places: Array, n: int) -> Array:
        """The last n of some ascending places in `rows`, the newest first."""
        first = int(np.searchsorted(places, self.head if self.filled == self.capacity else 0))
        ordered: Array = np.concatenate((places[first:], places[:first]))[::-1][:n]
        return ordered


class Recent(Sink):
    """The last exchanges. Callers have the monitor's lock; `frozen` returns a copy that needs no lock."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._exchanges = Ring(EXCHANGE, capacity)
        self._results = Ring(RESULT, capacity)  # error codes, and one row per topic of an exchange
        self._engine: Engine | None = None
        self._strings: list[str | None] = []
        self._addresses: list[str | None] = []

    def __len__(self) -> int:
        return self._exchanges.filled

    def add_batch(self, batch: Batch, engine: Engine) -> None:
        batch = self._replace_provisional(without_confirmed(batch))
        self._engine = engine
        self._exchanges.put(batch.exchanges)
        if len(batch.results):
            self._results.put(_kept_results(batch.results))
        if batch.topics is not None and len(batch.topics):
            self._results.put(as_results(batch.topics))

    def add_provisional(self, batch: Batch, engine: Engine) -> None:
        self.add_batch(batch, engine)

    def _replace_provisional(self, batch: Batch) -> Batch:
        """Replace provisional rows in the ring by final ones. Return the other rows."""
        if batch.provisional is None or not batch.provisional.any():
            return batch
        places = rows_of(self._exchanges.rows["exchange"], batch.exchanges["exchange"])
        late = (batch.provisional != 0) & (places >= 0)
        self._exchanges.rows[places[late]] = batch.exchanges[late]
        return batch._replace(exchanges=taken(batch.exchanges, np.flatnonzero(~late)))

    def resolve_names(self, engine: Engine) -> None:
        """Replace the numbers in the rings by own ones."""
        self._engine = engine
        strings: dict[str | None, int] = {}
        addresses: dict[str | None, int] = {}
        e, r = self._exchanges.rows, self._results.rows
        r["topic"] = np.where((r["topic"] == -1) & (r["topic_id"] != -1), self._named(r["topic_id"]), r["topic"])
        tables: tuple[tuple[Array, str, Callable[[int], str | None], dict[str | None, int]], ...] = (
            (e, "client_id", self._text, strings),
            (r, "topic", self._text, strings),
            (r, "topic_id", self._id_text, strings),
            (e, "client_ip", self._address, addresses),
            (e, "broker_ip", self._address, addresses),
        )
        new = [(rows, name, _renumbered(rows[name], look_up, own)) for rows, name, look_up, own in tables]
        for rows, name, column in new:
            rows[name] = column
        others = [(e, name) for name in EXCHANGE_STRINGS if name != "client_id"]
        for rows, name in (*others, (r, "name"), (r, "error_message")):
            rows[name] = -1  # the screen does not show these
        self._strings, self._addresses = list(strings), list(addresses)

    def frozen(self) -> Recent:
        """A copy of the rows now, with own names."""
        copy = Recent(0)
        copy._engine, copy._strings, copy._addresses = self._engine, self._strings, self._addresses
        for mine, theirs in ((self._exchanges, copy._exchanges), (self._results, copy._results)):
            theirs.capacity, theirs.head, theirs.filled = mine.capacity, mine.head, mine.filled
            theirs.bytes = mine.bytes.copy()
        if copy._engine is not None:
            copy.resolve_names(copy._engine)
        return copy

    def batch(self) -> tuple[Batch, Context]:
        """A copy of all rows, oldest first, with results only of errors and topics; and the names of their numbers."""
        engine = self._engine
        exchanges = taken(self._exchanges.rows, self._exchanges.newest(np.arange(len(self)), len(self))[::-1])
        results = self._results.rows.copy()
        strings = [] if engine is None else list(engine.strings)
        addresses = [] if engine is None else list(engine.addresses)
        for rows in (exchanges, results):
            for name in rows.dtype.names or ():
                if name in STRING_COLUMNS or name in ADDRESS_COLUMNS:
                    known = len(strings) if name in STRING_COLUMNS else len(addresses)
                    rows[name] = np.where(rows[name] <= _FIRST_OWN, known + _FIRST_OWN - rows[name], rows[name])
        strings += [None if text is None else text.encode() for text in self._strings]
        addresses += [address or "" for address in self._addresses]
        topic_names = {} if engine is None else dict(engine.topic_names)
        first, hosts = (None, None) if engine is None else (engine.first, engine.hosts)
        kept = taken(results, np.flatnonzero(np.isin(results["exchange"], exchanges["exchange"])))
        order = np.argsort(kept["exchange"], kind="stable")  # those of an exchange are adjacent
        context = Context(strings=strings, addresses=addresses, topic_names=topic_names, first=first, hosts=hosts)
        return Batch(exchanges, taken(kept, order)), context

    def picked(self, selection: Selection) -> Recent:
        """The exchanges that are selected: a copy."""
        batch, context = self.batch()
        mask = Selector(selection, context).select(batch)
        numbers = batch.exchanges["exchange"][mask]
        copy = self.frozen()
        rows = copy._exchanges.rows
        kept = taken(rows, copy._exchanges.newest(np.flatnonzero(np.isin(rows["exchange"], numbers)), len(rows))[::-1])
        copy._exchanges = Ring(EXCHANGE, max(len(kept), 1))
        copy._exchanges.put(kept)
        return copy

    def matching(self, within: Scope = (), n: int = 100) -> list[Message]:
        """The n exchanges of a scope that finished last, the latest begin first."""
        places = self._exchanges.newest(self._places(within), n)
        chosen = taken(self._exchanges.rows, places)
        errors, topics = self._answers(chosen["exchange"])
        messages = [
            message_of(
                e, self._text, self._address,
                tuple(errors[e["exchange"]].most_common()) if e["exchange"] in errors else (),
                tuple(topics.get(e["exchange"], ())), self._hosts,
            )
            for e in as_dicts(chosen)
        ]  # fmt: skip
        return sorted(messages, key=lambda m: (m.at, m.exchange), reverse=True)

    def active(self, within: Scope = (), n: int = 20) -> list[Connection]:
        """The connections of a scope, the most requests first."""
        places = self._exchanges.newest(self._places(within), self._exchanges.filled)
        rows = taken(self._exchanges.rows, places)
        numbers, first, inverse, requests = np.unique(
            rows["connection"], return_index=True, return_inverse=True, return_counts=True
        )
        failed = np.isin(rows["exchange"], self._results.rows["exchange"][self._results.rows["error_code"] != 0])
        prompt = (rows["outcome"] == 0) & ~np.isin(rows["api_key"], WAITS)
        found = []
        for i in np.lexsort((numbers, -requests))[:n]:
            own = inverse == i
            last, times = rows[first[i]], rows["broker_ns"][own & prompt]
            found.append(
                Connection(
                    connection=int(numbers[i]),
                    client=self._end(last, "client"),
                    broker=self._end(last, "broker"),
                    client_id=self._text(int(last["client_id"])),
                    requests=int(requests[i]),
                    failed=int(failed[own].sum()),
                    throttled=int((rows["throttle_time_ms"][own] > 0).sum()),
                    unanswered=int(np.isin(rows["outcome"][own], (UNANSWERED, RESPONSE_LOST)).sum()),
                    broker_p50=percentile(times, 50),
                    broker_p99=percentile(times, 99),
                    last=int(max(rows["request_first"][own].max(), rows["response_last"][own].max())),
                    client_host=_host_of(last, "client", self._address, self._hosts),
                    broker_host=_host_of(last, "broker", self._address, self._hosts),
                )
            )
        return found

    @property
    def _hosts(self) -> HostTable | None:
        return None if self._engine is None else self._engine.hosts

    def span(self) -> int:
        """The time between the oldest and the newest exchange, ns."""
        times = self._exchanges.rows["request_first"]
        known = times[times != NO_TIME]
        return int(known.max() - known.min()) if len(known) else 0

    def _places(self, within: Scope) -> Array:
        """The places of the exchanges of a scope, ascending."""
        rows = self._exchanges.rows
        fits = np.ones(len(rows), bool)
        for kind, name in within:
            if kind == "connection":
                fits &= rows["connection"] == name
            elif kind == "client":
                fits &= _have_name(rows["client_id"], self._text, name)
            elif kind == "api":
                numbers = rows["api_key"].astype(np.int64) * 2 + (rows["long_poll"] != 0)
                fits &= _have_name(numbers, lambda n: api_label(n >> 1, n & 1), name)
            elif kind == "broker":
                ends = rows["broker_ip"].astype(np.int64) * 65536 + rows["broker_port"]
                fits &= _have_name(ends, lambda n: endpoint(self._address(n >> 16), n & 65535), name)
            elif kind == "error":
                results = self._results.rows
                fits &= np.isin(rows["exchange"], results["exchange"][
                    _have_name(results["error_code"], error_label, name) & (results["error_code"] != 0)
                ])  # fmt: skip
            else:
                fits &= np.isin(rows["exchange"], self._with_topic(name))
        return np.flatnonzero(fits)

    def _with_topic(self, topic: str | int | None) -> Array:
        """The numbers of exchanges with a topic."""
        rows = self._results.rows
        fits = _have_name(rows["topic"], self._text, topic) & (rows["topic"] != -1)
        fits |= (rows["topic"] == -1) & (rows["topic_id"] != -1) & _have_name(rows["topic_id"], self._id_text, topic)
        numbers: Array = rows["exchange"][fits]
        return numbers

    def _answers(self, exchanges: Array) -> tuple[dict[int, Counter[str]], dict[int, dict[str, None]]]:
        """Error names and topics of exchanges, by their numbers."""
        errors: dict[int, Counter[str]] = {}
        topics: dict[int, dict[str, None]] = {}
        rows = self._results.rows
        places = np.flatnonzero(np.isin(rows["exchange"], exchanges))
        for row in as_dicts(taken(rows, self._results.newest(places, len(places))[::-1])):
            number, topic, topic_id = row["exchange"], row["topic"], row["topic_id"]
            if row["error_code"]:
                errors.setdefault(number, Counter())[error_label(row["error_code"])] += 1
            name = self._text(topic) if topic != -1 or topic_id == -1 else self._id_text(topic_id)
            if name is not None:
                topics.setdefault(number, {})[name] = None
        return errors, topics

    def _end(self, e: Any, side: str) -> str:
        return _end_of(e, side, self._address)

    def _text(self, number: int) -> str | None:
        if number <= _FIRST_OWN:
            return self._strings[_FIRST_OWN - number]
        value = self._engine.strings[number] if number >= 0 and self._engine is not None else None
        return None if value is None else value.decode("utf-8", "replace")

    def _id_text(self, number: int) -> str | None:
        """A topic's name by the number of its id, or the id itself."""
        if number <= _FIRST_OWN or self._engine is None:
            return self._text(number)
        name = self._engine.topic_names.get(number, -1)
        return self._text(name) if name >= 0 else uuid_text(self._engine.strings[number] if number >= 0 else None)

    def _named(self, topic_ids: Array) -> Array:
        """The numbers of topic names by the numbers of topic ids, -1 if unknown."""
        names = {} if self._engine is None else self._engine.topic_names
        found, inverse = np.unique(topic_ids, return_inverse=True)
        return np.array([names.get(int(n), -1) for n in found], np.int32)[inverse]

    def _address(self, number: int) -> str | None:
        if number <= _FIRST_OWN:
            return self._addresses[_FIRST_OWN - number]
        return self._engine.addresses[number] if number >= 0 and self._engine is not None else None


def message_of(
    e: Mapping[str, int], text: Callable[[int], str | None], address: Callable[[int], str | None],
    errors: tuple[tuple[str, int], ...] = (), topics: tuple[str, ...] = (), hosts: HostTable | None = None,
) -> Message:  # fmt: skip
    """The Message of an EXCHANGE row. `text`, `address`: look up the texts of its numbers. `hosts`: of addresses."""
    answered, throttle = e["outcome"] == ANSWERED, e["throttle_time_ms"]
    return Message(
        at=e["response_first" if e["outcome"] == ORPHAN_RESPONSE else "request_first"],
        exchange=e["exchange"],
        connection=e["connection"],
        client=_end_of(e, "client", address),
        broker=_end_of(e, "broker", address),
        client_id=text(e["client_id"]),
        api=api_label(e["api_key"], e["long_poll"]),
        api_version=e["api_version"],
        correlation_id=e["correlation_id"],
        outcome=OUTCOMES[e["outcome"]],
        request_bytes=maybe(e["request_bytes"]),
        response_bytes=maybe(e["response_bytes"]),
        broker_ns=e["broker_ns"] if answered else None,
        hol_wait_ns=e["hol_wait_ns"] if answered else None,
        throttle_wait_ns=e["throttle_wait_ns"] if answered else None,
        total_ns=e["total_ns"] if answered else None,
        throttle_time_ms=None if throttle == NO_INT32 else throttle,
        waits=e["api_key"] in WAITS,
        error_codes=errors,
        topics=topics,
        waited_ns=e["waited_ns"] if e["outcome"] == IN_FLIGHT else None,
        client_host=_host_of(e, "client", address, hosts),
        broker_host=_host_of(e, "broker", address, hosts),
    )


def _end_of(e: Any, side: str, address: Callable[[int], str | None]) -> str:
    return endpoint(address(int(e[f"{side}_ip"])), int(e[f"{side}_port"]))


def _host_of(e: Any, side: str, address: Callable[[int], str | None], hosts: HostTable | None) -> str | None:
    """The name of an end's address when the exchange began."""
    ip = None if hosts is None else address(int(e[f"{side}_ip"]))
    if hosts is None or ip is None:
        return None
    found = hosts.name_at(ip, int(e["response_first" if e["outcome"] == ORPHAN_RESPONSE else "request_first"]))
    return None if found is None else found.text


def _kept_results(results: Array) -> Array:
    """The RESULT rows with an error code, and the first row of each topic. Rows of an exchange are adjacent."""
    exchange, topic, topic_id = results["exchange"], results["topic"], results["topic_id"]
    begins = np.ones(len(results), bool)
    begins[1:] = (exchange[1:] != exchange[:-1]) | (topic[1:] != topic[:-1]) | (topic_id[1:] != topic_id[:-1])
    named = (topic >= 0) | (topic_id >= 0)
    return taken(results, np.flatnonzero((results["error_code"] != 0) | (begins & named)))


def as_dicts(rows: Array) -> list[dict[str, int]]:
    """Records as dicts: much faster than single reads from numpy."""
    names = rows.dtype.names or ()
    return [dict(zip(names, row, strict=True)) for row in rows.tolist()]


def _have_name(numbers: Array, look_up: Callable[[int], str | None], name: str | int | None) -> Array:
    """Which numbers have this name: bool (n,)."""
    found, inverse = np.unique(numbers, return_inverse=True)
    fits: Array = np.array([look_up(int(n)) == name for n in found], bool)[inverse]
    return fits


def _renumbered(column: Array, look_up: Callable[[int], str | None], own: dict[str | None, int]) -> Array:
    """Replace the numbers of a column by those of the table `own`, which grows. -1 stays."""
    found, inverse = np.unique(column, return_inverse=True)
    numbers = [-1 if n == -1 else _FIRST_OWN - own.setdefault(look_up(int(n)), len(own)) for n in found]
    return np.array(numbers, column.dtype)[inverse]
