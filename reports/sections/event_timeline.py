"""What a capture shows of each broker over time, as columns: answers, connections, waits, errors. All events read it.

`Seen` is made once for a report. Its columns have an index of a broker beside the numbers of addresses.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED, NO_TIME
from kafkatap.kernels.arrays import distinct_values, groups_of, is_among

from .. import units
from ..batch import Array
from ..findings import Party
from ..parties import Options
from ..section_parts.cluster import NODES, Cluster, codes_of
from ..section_parts.section import SectionInput
from .event_answers import ANSWERS, SECOND
from .event_counts import CONNECTIONS, COORDINATOR, ERRORS, HEARTBEAT, LINKS, RESENT_PACKETS, THROTTLED, WAIT
from .slow_times import SLOW_AT

#: Commands show this much before and after an event.
AROUND_NS = SECOND


_NOT_COORDINATOR = 16
#: A client that is answered NOT_COORDINATOR looks for the coordinator again within this (retry.backoff.max.ms is 1 s).
_ASKED_AGAIN_NS = 2 * SECOND
NO_ROWS = np.zeros(0, np.int64)


def around(begin: int, end: int | None) -> Options:
    """The options of a command that shows a time, to the millisecond."""
    last = begin if end is None else end
    return (("from", _moment(begin - AROUND_NS)), ("to", _moment(last + AROUND_NS)))


def _moment(ns: int) -> str:
    """A time as options read it, whatever the time zone of the reader."""
    return units.iso(ns // 1_000_000 * 1_000_000).removesuffix("Z").rstrip("0").rstrip(".") + "Z"


class Burst:
    """Rows of a form that belong together in time."""

    __slots__ = ("_columns", "_rows")

    def __init__(self, columns: dict[str, Array], rows: Array) -> None:
        self._columns, self._rows = columns, rows

    def __getitem__(self, name: str) -> Array:
        found: Array = self._columns[name][self._rows]
        return found

    @property
    def begin(self) -> int:
        return int(self["first"].min())

    @property
    def last(self) -> int:
        return int(self["last"].max())

    @property
    def packet(self) -> int:
        """The first one."""
        return int(self["packet"].min())

    def total(self, name: str) -> int:
        return int(self[name].sum())


def bursts(columns: dict[str, Array], pause: int, *by: str) -> Iterator[Burst]:
    """The rows of a form with the same values of some columns, split where nothing happened for `pause` ns, each group
    in order of time."""
    whole = [((), np.arange(len(columns["first"])))]
    for _, rows in groups_of(*(columns[name] for name in by)) if by else whole:
        if len(rows):
            order = rows[np.argsort(columns["first"][rows], kind="stable")]
            reached = np.maximum.accumulate(columns["last"][order])
            for run in np.split(order, np.flatnonzero(columns["first"][order][1:] - reached[:-1] > pause) + 1):
                yield Burst(columns, run)


class Gap(NamedTuple):
    """A time without an answer: of the last answer before, and of the first one after it (ns; None: none came)."""

    begin: int
    end: int | None

    def until(self, last: int) -> int:
        return last if self.end is None else self.end


class Seen:
    """The columns of the section's counts. `begin`, `end`: of the capture, ns since the epoch."""

    def __init__(self, given: SectionInput) -> None:
        self.given, self.context = given, given.context
        self.brokers = given.once(Cluster)
        self.events = given.events("events")
        beats = HEARTBEAT.among(self.events)
        nodes = given.keys(NODES.name)["node"]
        #: HEARTBEAT events of nodes that exist: answered without an error, or listed as a broker.
        is_node = (beats["outcome"] == ANSWERED) | is_among(beats["node"], nodes)
        self.heartbeats = beats[is_node & (beats["error_code"] == 0)]
        self.begin, self.end = given.context.first or 0, given.context.last or 0
        self.answers = self.columns(ANSWERS.name)
        self.errors = self.columns(ERRORS.name)
        self.throttled = self.columns(THROTTLED.name)
        self._times: dict[tuple[str, int | None], Array] = {}
        self._groups: dict[tuple[str, ...], dict[tuple[int, ...], Array]] = {}

    def columns(self, form: str, time: str = "second") -> dict[str, Array]:
        """The columns of a form with the brokers, in order of time, without rows that were added up. `time`: its key
        that these have not."""
        columns = {**self.given.keys(form), **self.given.values(form)}
        columns["broker"] = self.brokers.of(columns["broker_ip"], columns["broker_port"])
        rows = np.flatnonzero((columns["broker"] >= 0) & (columns[time] >= 0))
        rows = rows[np.argsort(columns["last"][rows], kind="stable")]
        return {name: values[rows] for name, values in columns.items()}

    def client_name(self, client_id: int, client_ip: int) -> str:
        """A client, or its host where no client_id is known: its connections were refused, or are encrypted."""
        name, host = self.context.text(client_id), self.context.address(client_ip) or "?"
        return f'client "{name}" ({host})' if name is not None else f"host {host}"

    def client_party(self, client_id: int, client_ip: int) -> Party:
        """As of `client_name`."""
        name = self.context.text(client_id)
        return Party("host", self.context.address(client_ip) or "?") if name is None else Party("client", name)

    @cached_property
    def waits(self) -> dict[str, Array]:
        """WAIT events: client_ip, broker, api_key, connection, begin, end (ns; without an answer the end of the
        connection or of the capture), own, behind (ns: for data, and for earlier requests), is_prompt, is_answered,
        is_resent: packets that did not arrive were sent again.
        Without connections of which the capture lacks bytes: it may lack the answers.
        """
        rows = WAIT.among(self.events)
        rows = rows[~self._is_missing(rows["connection"])]
        is_answered = rows["answered"] != NO_TIME
        closed, resent = self._links(rows["connection"])
        end = np.where(is_answered, rows["answered"], np.where(closed > 0, closed, self.end))
        # Most of the wait was loss. Without an answer: what was sent again has not arrived to the end.
        is_resent = np.where(is_answered, 2 * rows["loss_ns"] > end - rows["asked"], resent >= RESENT_PACKETS)
        return {
            "client_ip": rows["client_ip"].astype(np.int64), "client_id": rows["client_id"].astype(np.int64),
            "broker": self.brokers.of(rows["broker_ip"].astype(np.int64), rows["broker_port"].astype(np.int64)),
            "api_key": rows["api_key"], "connection": rows["connection"], "packet": rows["packet"],
            "begin": rows["asked"], "end": end, "own": rows["own_ns"], "behind": _behind(rows, is_answered, end),
            "is_prompt": rows["is_prompt"] == 1, "is_answered": is_answered,
            "is_resent": is_resent,
        }  # fmt: skip

    def groups(self, table: str, *keys: str) -> dict[tuple[int, ...], Array]:
        """The rows of `answers`, `connections`, `heartbeats` or `waits` by the values of some columns."""
        if (table, *keys) not in self._groups:
            columns = getattr(self, table)
            groups = groups_of(*(columns[key].astype(np.int64) for key in keys))
            self._groups[table, *keys] = {tuple(values): rows for values, rows in groups}
        return self._groups[table, *keys]

    def rows_of(self, table: str, **values: int) -> Array:
        """The rows of `groups` with these values."""
        return self.groups(table, *values).get(tuple(values.values()), NO_ROWS)

    def heartbeats_of(self, node: int) -> Array:
        """The heartbeats of a node."""
        found: Array = self.heartbeats[self.rows_of("heartbeats", node=node)]
        return found

    def waits_of(self, broker: int) -> dict[str, Array]:
        """The waits for answers of a broker."""
        return self.of(self.waits, self.rows_of("waits", broker=broker))

    @cached_property
    def slow(self) -> dict[str, Array]:
        """The columns of slow requests by second."""
        return self.columns(SLOW_AT.name)

    @cached_property
    def coordinator_moves(self) -> list[tuple[int, int, str, int, int]]:
        """Groups, and transactional ids, whose coordinator changed: time, packet, key, the node before and after."""
        rows = COORDINATOR.among(self.events)
        found, latest = [], dict[tuple[int, int, int], int]()
        names = ("time", "packet", "key", "node", "client_ip", "client_id", "broker_ip", "broker_port")
        for time, packet, text, node, client_ip, client_id, *end in zip(
            *(rows[n].tolist() for n in names), strict=True
        ):
            key = (text, end[0], end[1])  # by the broker that answers: another cluster may have a group of that name
            before = latest.get(key)
            if before is None:
                before = self._refused_by(client_ip, client_id, time)
            if before not in (None, node):
                found.append((time, packet, self.context.text(text) or "", before, node))
            latest[key] = node
        return found

    def _refused_by(self, client_ip: int, client_id: int, time: int) -> int | None:
        """The node that last answered NOT_COORDINATOR to a client shortly before a time."""
        errors = self.errors
        mine = (errors["client_ip"] == client_ip) & (errors["client_id"] == client_id)
        mine &= (errors["error_code"] == _NOT_COORDINATOR) & (errors["first"] < time)
        mine &= errors["last"] > time - _ASKED_AGAIN_NS
        rows = np.flatnonzero(mine)
        return self.brokers.nodes[int(errors["broker"][rows[-1]])] if len(rows) else None

    def _is_missing(self, connections: Array) -> Array:
        """Whether the capture lacks bytes of connections."""
        lacking = self.given.values(LINKS.name)["missing"] > 0
        found: Array = is_among(connections, self.given.keys(LINKS.name)["connection"][lacking])
        return found

    def _links(self, connections: Array) -> tuple[Array, Array]:
        """When connections were closed (0: open at the end), and how many packets one end sent again, where bytes of
        an end are not acknowledged (else 0)."""
        values, (at, is_known) = self.given.values(LINKS.name), self._link_rows(connections)
        found = np.zeros((2, len(connections)), np.int64)
        found[0, is_known] = np.maximum(values["closed_at"][at], 0)
        found[1, is_known] = np.where(values["is_stuck"][at] > 0, values["resent"][at], 0)
        return found[0], found[1]

    def _link_rows(self, connections: Array) -> tuple[Array, Array]:
        """The rows of LINKS of the connections that have one, and which these are: bool."""
        keys, order = self._links_in_order
        at = np.searchsorted(keys, connections)
        is_known = at < np.searchsorted(keys, connections, "right")
        return order[at[is_known]], is_known

    @cached_property
    def _links_in_order(self) -> tuple[Array, Array]:
        """The connections of LINKS, ascending, and their rows."""
        keys = self.given.keys(LINKS.name)["connection"]
        order = np.argsort(keys)
        return keys[order], order

    def acknowledged_after(self, connections: Array, since: int) -> int:
        """How many connections have a packet after a time, and nothing of the client that is not acknowledged: the last
        word is that of the broker's host."""
        values = self.of(self.given.values(LINKS.name), self._link_rows(connections)[0])
        heard = (values["last"] >= since) & (values["unacknowledged_bytes"] == 0) & (values["closed_at"] < 0)
        return int(heard.sum())

    def connections_of(self, **values: int) -> dict[str, Array]:
        """The connections with these values: of a broker, or of it and a host."""
        return self.of(self.connections, self.rows_of("connections", **values))

    @cached_property
    def connections(self) -> dict[str, Array]:
        """The columns of connections, with has_answered: whether their end answered requests in the capture."""
        answers, connections = self.answers, self.columns(CONNECTIONS.name)
        answered = distinct_values(codes_of(answers["broker_ip"], answers["broker_port"]))
        found = is_among(codes_of(connections["broker_ip"], connections["broker_port"]), answered)
        return {**connections, "has_answered": found}

    def answers_of(self, broker: int) -> Array:
        """The rows of a broker's answers."""
        return self.rows_of("answers", broker=broker)

    def of(self, columns: dict[str, Array], chosen: Array) -> dict[str, Array]:
        """Some rows of columns. `chosen`: their places, or a mask."""
        return {name: values[chosen] for name, values in columns.items()}

    def others_answered(self, rows: Array, begin: int, end: int, broker: int | None = None) -> bool:
        """Whether answers came within a time, of a broker or of any, other than those in `rows`."""
        for name in ("first", "last"):
            times, own = self._answer_times(name, broker), self.answers[name][rows]
            came = int(np.searchsorted(times, end) - np.searchsorted(times, begin, "right"))
            if came > np.count_nonzero((own > begin) & (own < end)):
                return True
        return False

    def _answer_times(self, name: str, broker: int | None) -> Array:
        """The times of answers of a broker (None: of all), sorted."""
        key = name, broker
        if key not in self._times:
            times = self.answers[name]
            self._times[key] = np.sort(times if broker is None else times[self.answers_of(broker)])
        return self._times[key]

    def gaps(self, mask: Array, shortest: int) -> list[Gap]:
        """The times of at least `shortest` ns without any of the answers in `mask`, from the first of these on. The
        time from the last answer to the capture's end is one, too."""
        first, last = self.answers["first"][mask], self.answers["last"][mask]
        if not len(first):
            return []
        order = np.argsort(first, kind="stable")
        first, last = first[order], np.maximum.accumulate(last[order])
        ends = np.append(first[1:], self.end)
        return [
            Gap(int(last[i]), int(ends[i]) if i + 1 < len(first) else None)
            for i in np.flatnonzero(ends - last >= shortest).tolist()
        ]

    def next_answer(self, mask: Array, after: int) -> int | None:
        """The first of the answers in `mask` after a time; the last of its second if only that is known."""
        first, last = self.answers["first"][mask], self.answers["last"][mask]
        later = np.where(first > after, first, np.where(last > after, last, np.iinfo(np.int64).max))
        return int(later.min()) if len(later) and later.min() != np.iinfo(np.int64).max else None

    def shown(self, broker: int | None, begin: int, end: int | None, client_ip: int | None = None) -> Options:
        """The options of the command that prints the exchanges of a broker around an event."""
        options = around(begin, end)
        conditions = [] if broker is None else [f'broker == "{self.brokers.name(broker)}"']
        if client_ip is not None:
            conditions.append(f'client_ip == "{self.context.address(client_ip)}"')
        return (*options, *((("filter", " and ".join(conditions)),) if conditions else ()))


def _behind(rows: Array, is_answered: Array, end: Array) -> Array:
    """How long waits were behind earlier requests of their connection, ns. Brokers answer these in order: without an
    answer the first one of a connection is behind until the last answer of it, and all others are to the end."""
    connections, at = np.unique(rows["connection"], return_inverse=True)
    last = np.full(len(connections), NO_TIME)
    np.maximum.at(last, at[is_answered], rows["answered"][is_answered])
    first = np.full(len(connections), np.iinfo(np.int64).max)
    np.minimum.at(first, at[~is_answered], rows["asked"][~is_answered])
    until = np.where(rows["asked"] > first[at], end, np.maximum(last[at], rows["asked"]))
    found: Array = np.where(is_answered, rows["behind_ns"], until - rows["asked"])
    return found
