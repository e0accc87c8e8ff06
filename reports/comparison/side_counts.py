"""`SideCounts`: what is counted of one side of a comparison, in blocks of time. All of it is sums, so it can be merged.

Blocks begin short and double their length whenever there are more than MOST_BLOCKS. A block is a number of intervals
since the epoch, so the counts of two parts of a side have blocks at the same places.

Memory is bounded by MOST_ROWS for each table. Beyond it blocks become longer, and then only a part of the clients is
counted one by one, the rest as "(other)". A hash of its name says which part a client is in. So both sides have the
same clients, and each of these is counted from the start to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, FETCHES, INCOMPLETE, ORPHAN_RESPONSE, UNANSWERED
from kafkatap.dissector.time_parts import DURATIONS
from kafkatap.kernels.arrays import distinct_values, is_among

from ..batch import Array, Batch, as_results, rows_of
from ..connection_words import H_COMPLETE, H_REFUSED, H_UNANSWERED, P_KAFKA
from ..counting.count_forms import ADDRESS, NUMBER, OTHER, TEXT, CountForm, CountStore, FormCounts
from ..counting.count_table import SUM
from ..expressions.exchange_columns import began_at
from .names import HASHES, hash_of

#: The first length of a block, ns, and the most blocks of a side.
FIRST_LENGTH, MOST_BLOCKS = 15_625_000, 64
MILLISECOND = 1_000_000
#: Rows of a table at most.
MOST_ROWS = 200_000
#: Of these, no clients are left.
_FEWEST_HASHES = HASHES >> 10
PRODUCE = 0

_WHO = {"block": NUMBER, "api_key": NUMBER, "client_id": TEXT}
_AT = {"broker_ip": ADDRESS, "broker_port": NUMBER}
_TIMES = ("total", "broker")
_VALUES = (
    "requests", "answered", "expecting", "unanswered", "failed", "throttled", "throttle_known", *DURATIONS, "bytes",
    "records",
)  # fmt: skip

#: `expecting`: requests that expect a response, and whose response was not lost in the capture. `bytes`: of Produce
#: requests and Fetch responses. `size`, `records`: histograms of these bytes, and of the records in a batch of a
#: Produce request or in a Fetch response.
EXCHANGES = CountForm(
    "exchanges", {**_WHO, **_AT}, dict.fromkeys(_VALUES, SUM), {"client_id": OTHER}, (*_TIMES, "size", "records")
)
TOPICS = CountForm(
    "topics", {**_WHO, "topic": TEXT, "topic_id": TEXT}, dict.fromkeys(_VALUES, SUM),
    {"client_id": OTHER, "topic": OTHER, "topic_id": -1}, ("total",),
)  # fmt: skip
ERRORS = CountForm("errors", {**_WHO, **_AT, "error_code": NUMBER}, {"exchanges": SUM}, {"client_id": OTHER})
VERSIONS = CountForm("versions", {**_WHO, "api_version": NUMBER}, {"requests": SUM}, {"client_id": OTHER})
#: `block`: of the first packet; of TRAFFIC a number of the connection, because the bytes of a connection have no times.
CONNECTIONS = CountForm(
    "connections", {"block": NUMBER, "client_id": TEXT, **_AT}, {"opened": SUM, "refused": SUM, "asked": SUM},
    {"client_id": OTHER}, ("rtt",),
)  # fmt: skip
TRAFFIC = CountForm(
    "traffic", {"block": NUMBER, "client_id": TEXT, **_AT},
    {"packets": SUM, "retransmitted": SUM, "bytes": SUM, "gaps": SUM}, {"client_id": OTHER},
)  # fmt: skip
#: ClientHellos by their JA4, in the block of the connection's first packet. Clients have other ports on each side, and
#: often other addresses, so these are no part of the key.
HELLOS = CountForm("hellos", {"block": NUMBER, "ja4": TEXT}, {"connections": SUM}, {})
TIMED = (EXCHANGES, TOPICS, ERRORS, VERSIONS, CONNECTIONS)


class SideCounts:
    """The counts of one side by the name of their form. `length`: of a block, ns. `first`, `last`: when the first and
    the last exchange began, ns. `limit`: clients with a smaller hash are counted one by one.

    Of the whole side: `requests`; `cut_requests`, `cut_responses`: those of which bytes are missing; `nameless`: of the
    former those without a client id; `unthrottled`: of the latter those whose throttle time is missing; `fine_times`:
    requests whose time is not a whole ms.
    """

    def __init__(self, length: int = FIRST_LENGTH) -> None:
        self.length = length
        self.first: int | None = None
        self.last: int | None = None
        self.limit = HASHES
        self.requests = self.cut_requests = self.nameless = self.cut_responses = self.unthrottled = 0
        self.fine_times = 0
        self._store = CountStore(FormCounts(form) for form in (*TIMED, TRAFFIC, HELLOS))

    def add(self, batch: Batch) -> None:
        """Add the exchanges of a batch with all their results."""
        rows, results = batch.exchanges, batch.counted_results
        known = rows["outcome"] != ORPHAN_RESPONSE
        if not known.all():
            rows = rows[known]
            results = results[is_among(results["exchange"], rows["exchange"])]
        if not len(rows):
            return
        at = began_at(rows)
        self._note_quality(rows, at)
        self._cover(int(at.min()), int(at.max()))
        block = at // self.length
        who = [block, rows["api_key"], rows["client_id"]]
        where = [rows["broker_ip"], rows["broker_port"]]
        owner = rows_of(rows["exchange"], results["exchange"])
        carried = _carried(rows, results, owner)
        values = _values(rows, results, owner, carried)
        keys = _stack(*who, *where)
        self._count(EXCHANGES, keys, values)
        self._count(VERSIONS, _stack(*who, rows["api_version"]), {"requests": np.ones(len(rows), np.int64)})
        answered = rows["outcome"] == ANSWERED
        for number, name in enumerate(_TIMES):
            self._observe(EXCHANGES, number, keys[answered], rows[f"{name}_ns"][answered])
        has_size = values["bytes"] > 0
        self._observe(EXCHANGES, 2, keys[has_size], values["bytes"][has_size])
        per_batch = carried & (rows["api_key"][owner] == PRODUCE)
        self._observe(EXCHANGES, 3, keys[owner[per_batch]], results["records"][per_batch])
        fetched = (values["records"] > 0) & (rows["api_key"] != PRODUCE)
        self._observe(EXCHANGES, 3, keys[fetched], values["records"][fetched])
        self._add_errors(keys, results, owner)
        self._add_topics(who, rows, _with_requested(rows, results, owner, batch.topics), values)

    def _note_quality(self, rows: Array, at: Array) -> None:
        is_cut, was_cut = (
            (rows[f"{what}_status"] == INCOMPLETE) & (rows[f"{what}_cut_bytes"] == 0)
            for what in ("request", "response")
        )
        self.requests += len(rows)
        self.cut_requests += int(is_cut.sum())
        self.unthrottled += int((was_cut & (rows["throttle_time_ms"] < 0)).sum())
        self.cut_responses += int(was_cut.sum())
        self.nameless += int((is_cut & (rows["client_id"] < 0)).sum())
        self.fine_times += int((at % MILLISECOND != 0).sum())

    def _add_errors(self, keys: Array, results: Array, owner: Array) -> None:
        failed = results["error_code"] != 0
        if not failed.any():
            return
        pairs = distinct_values(
            np.stack((owner[failed], results["error_code"][failed].astype(np.int64)), axis=1), axis=0
        )
        found = np.concatenate((keys[pairs[:, 0]], pairs[:, 1:]), axis=1)
        self._count(ERRORS, found, {"exchanges": np.ones(len(found), np.int64)})

    def _add_topics(self, who: list[Array], rows: Array, results: Array, values: dict[str, Array]) -> None:
        owner = rows_of(rows["exchange"], results["exchange"])
        has_topic = (results["topic"] >= 0) | (results["topic_id"] >= 0)
        if not has_topic.any():
            return
        part, its = results[has_topic], owner[has_topic]
        topics = np.stack([its, part["topic"].astype(np.int64), part["topic_id"].astype(np.int64)], axis=1)
        pairs, place = np.unique(topics, axis=0, return_inverse=True)
        place = place.reshape(-1)
        chosen = pairs[:, 0]
        found = {name: column[chosen] for name, column in values.items()}
        for name in ("bytes", "records"):
            amounts = np.maximum(part[name], 0)
            found[name] = np.bincount(place, weights=amounts, minlength=len(pairs)).astype(np.int64)
        found["failed"] = (np.bincount(place, weights=part["error_code"] != 0, minlength=len(pairs)) > 0).astype(int)
        keys = np.concatenate((_stack(*who)[chosen], pairs[:, 1:]), axis=1)
        self._count(TOPICS, keys, found)
        answered = rows["outcome"][chosen] == ANSWERED
        self._observe(TOPICS, 0, keys[answered], rows["total_ns"][chosen][answered])

    def add_connections(self, rows: Array, start: int, end: int, has_answers: bool = True) -> None:
        """Add connections (CONNECTION_ROW) that began at `start` or later and before `end`, ns. Their traffic counts
        only if it ended before `end` too. `has_answers`: a SYN without an answer was refused; otherwise its answer may
        not be in the capture."""
        hellos = rows[(rows["tls_ja4"] >= 0) & (rows["first"] >= start) & (rows["first"] < end)]
        if len(hellos):
            self._cover(int(hellos["first"].min()), int(hellos["first"].max()))
            keys = _stack(hellos["first"] // self.length, hellos["tls_ja4"])
            self._count(HELLOS, keys, {"connections": np.ones(len(hellos), np.int64)})
        rows = rows[
            (rows["protocol"] == P_KAFKA) | (rows["handshake"] == H_REFUSED) | (rows["handshake"] == H_UNANSWERED)
        ]
        began = rows[(rows["first"] >= start) & (rows["first"] < end)]
        if len(began):
            self._cover(int(began["first"].min()), int(began["first"].max()))
            keys = _stack(began["first"] // self.length, began["client_id"], began["broker_ip"], began["broker_port"])
            states = began["handshake"]
            asked = states != 0
            refused = (states == H_REFUSED) | ((states == H_UNANSWERED) & has_answers)
            self._count(CONNECTIONS, keys, {
                "opened": states == H_COMPLETE, "refused": refused, "asked": asked,
            })  # fmt: skip
            timed = began["handshake_rtt_ns"] >= 0
            self._observe(CONNECTIONS, 0, keys[timed], began["handshake_rtt_ns"][timed])
        whole = rows[(rows["first"] >= start) & (rows["last"] < end) & (rows["protocol"] == P_KAFKA)]
        if len(whole):
            number = whole["connection"] % MOST_BLOCKS
            keys = _stack(number, whole["client_id"], whole["broker_ip"], whole["broker_port"])
            both = {
                name: whole[f"client_{column}"].astype(np.int64) + whole[f"broker_{column}"]
                for name, column in (
                    ("packets", "packets"), ("retransmitted", "retransmitted_packets"), ("bytes", "bytes"),
                    ("gaps", "gap_bytes"),
                )
            }  # fmt: skip
            self._count(TRAFFIC, keys, both)

    @property
    def forms(self) -> Mapping[str, FormCounts]:
        """The counts by the name of their form."""
        return self._store.forms

    def merge(self, other: SideCounts) -> None:
        """Add the counts of another part of the same side, of the same run; `fold` afterwards."""
        if other.first is None or other.last is None:
            return
        while other.length < self.length:
            other._double()
        while self.length < other.length:
            self._double()
        self._store.merge(other._store)
        self._cover(other.first, other.last)
        self.limit = min(self.limit, other.limit)
        for name in ("requests", "cut_requests", "nameless", "cut_responses", "unthrottled", "fine_times"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def _cover(self, first: int, last: int) -> None:
        """Lengthen the blocks until there are few enough up to these times."""
        self.first = first if self.first is None else min(first, self.first)
        self.last = last if self.last is None else max(last, self.last)
        while self.last // self.length - self.first // self.length >= MOST_BLOCKS:
            self._double()

    def _double(self) -> None:
        self.length *= 2
        for form in (*TIMED, HELLOS):
            counts = self.forms[form.name]
            keys = counts.table.key_rows().copy()
            keys[:, 0] >>= 1
            self._store.rekey(form.name, keys)

    def fold(self, text: Callable[[int], str | None]) -> None:
        """Bound the tables: longer blocks, then only a part of the clients, half as many at a time. `text`: the client
        id of a number. Rows that are added later may have all clients, until `limit_clients` is called."""
        while max(len(self.forms[form.name]) for form in (*TIMED, TRAFFIC)) > MOST_ROWS:
            if self._span() >= MOST_BLOCKS // 2:
                self._double()
            elif self.limit:
                self.limit_clients(self.limit // 2 if self.limit > _FEWEST_HASHES else 0, text)
            else:
                break

    def limit_clients(self, limit: int, text: Callable[[int], str | None]) -> None:
        """Add up the clients whose hash is not below a limit. 0: all clients, and all topics."""
        self.limit = min(limit, self.limit)
        if self.limit >= HASHES:
            return
        for form in (*TIMED, TRAFFIC):
            counts = self.forms[form.name]
            keys = counts.table.key_rows().copy()
            column = list(form.keys).index("client_id")
            clients, place = np.unique(keys[:, column], return_inverse=True)
            is_out = np.array([n != OTHER and hash_of(text(n)) >= self.limit for n in clients.tolist()], bool)
            keys[:, column] = np.where(is_out, OTHER, clients)[place.reshape(-1)]
            if not self.limit and "topic" in form.keys:
                keys[:, list(form.keys).index("topic")], keys[:, list(form.keys).index("topic_id")] = OTHER, -1
            if is_out.any() or not self.limit:
                self._store.rekey(form.name, keys)

    def _span(self) -> int:
        """The number of blocks."""
        if self.first is None or self.last is None:
            return 0
        return self.last // self.length - self.first // self.length + 1

    def _count(self, form: CountForm, keys: Array, values: dict[str, Array]) -> None:
        self.forms[form.name].add(keys, _stack(*(values[name] for name in form.values)))

    def _observe(self, form: CountForm, metric: int, keys: Array, numbers: Array) -> None:
        self.forms[form.name].observe(metric, keys, np.maximum(numbers, 0).astype(np.int64))


def _stack(*columns: Array) -> Array:
    return np.stack([column.astype(np.int64) for column in columns], axis=1)


def _carried(rows: Array, results: Array, owner: Array) -> Array:
    """Which results carry records whose number is known: bool (n,)."""
    api = rows["api_key"][owner]
    found: Array = (results["records"] > 0) & ((api == PRODUCE) | is_among(api, FETCHES))
    return found


def _with_requested(rows: Array, results: Array, owner: Array, topics: Array | None) -> Array:
    """The results, and the topics of the requests without any as results."""
    if topics is None or not len(topics):
        return results
    has_results = np.zeros(len(rows), bool)
    has_results[owner] = True
    asked = rows_of(rows["exchange"], topics["exchange"])
    left = topics[(asked >= 0) & ~has_results[asked]]
    return np.concatenate((results, as_results(left))) if len(left) else results


def _values(rows: Array, results: Array, owner: Array, carried: Array) -> dict[str, Array]:
    """The values of EXCHANGES, one for each exchange."""
    outcome, api = rows["outcome"], rows["api_key"]
    answered = outcome == ANSWERED
    throttle = rows["throttle_time_ms"]
    sent, received = (rows[f"{side}_bytes"] - rows[f"{side}_cut_bytes"] for side in ("request", "response"))
    size = np.where(api == PRODUCE, sent, np.where(is_among(api, FETCHES), received, 0))
    failed = np.bincount(owner, weights=results["error_code"] != 0, minlength=len(rows)) > 0
    records = np.bincount(owner[carried], weights=results["records"][carried], minlength=len(rows))
    return {
        "requests": np.ones(len(rows), np.int64),
        "answered": answered,
        "expecting": answered | (outcome == UNANSWERED),
        "unanswered": outcome == UNANSWERED,
        "failed": failed,
        "throttled": throttle > 0,
        "throttle_known": throttle >= 0,
        "bytes": np.maximum(size, 0),
        "records": records,
    } | {name: np.where(answered, np.maximum(rows[name], 0), 0) for name in DURATIONS}
