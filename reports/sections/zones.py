"""Zones: bytes between the zones of clients and brokers, by topic, and what a nearer replica could have served.

A zone is the rack of a broker, as Metadata names it, or the rack that a consumer names in its Fetch requests
(client.rack). `--zones FILE` names the zones of networks, and goes before both; then come labels in the files of
`--hosts`. Last comes what clients write into their client ids (`ws_az=`, `diskless_az=`). Bytes are those of messages
with their size fields. Record batches count for their topic, the rest of a message for none.

A consumer in another zone than its broker could have read from a replica in its own zone, if the partition has one
(replica.selector.class, KIP-392). Metadata names the replicas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import NO_INT32, NO_TIME
from kafkatap.kernels.arrays import distinct_values

from ..batch import Array
from ..counting.count_forms import ADDRESS, NUMBER, TEXT
from ..model import Column, ReportTable, in_columns, largest_first
from ..section_parts.counted import BROKER, CLIENT, KEPT, PLACE, Rows, counted, once, total
from ..section_parts.gathered import Gathered
from ..section_parts.section import Section, SectionInput
from ..units import share, size

ZONES = (
    Column("client_zone", "client\nzone", "text", "zone of the client, or of the follower; empty: unknown"),
    Column("broker_zone", "broker\nzone", "text", "zone of the broker"),
    Column("topic", "topic", "text", "topic of the records; none: what is no record"),
    Column("traffic", "traffic", "text", "produce, fetch, replication (Fetch of followers) or other"),
    Column("to_broker_bytes", "to broker", "bytes", "bytes that the client sent"),
    Column("to_client_bytes", "to client", "bytes", "bytes that the broker sent"),
    Column("crosses", "crosses", "flag", "the zones are known and differ"),
    Column("bytes_share", "share", "share", "share of all bytes"),
    Column("local_bytes", "a nearer\nreplica has", "bytes",
           "fetched bytes of partitions with a replica in the zone", apis=(1,)),
)  # fmt: skip
READERS = (
    Column("client_id", "client", "text", "client_id of the Fetch requests", of="part.client_id"),
    Column("client_ip", "client IP", "text", "IP address of the client", end="client", of="part.client_ip"),
    Column("client_zone", "zone", "text", "zone of the client", of="part.client_zone"),
    Column("client_rack", "client.rack", "text", "the rack that its Fetch requests name", of="part.rack"),
    Column("topic", "topic", "text", "topic", of="part.topic"),
    Column("cross_bytes", "cross-zone\nbytes", "bytes",
           "bytes of records that it fetched from other zones", apis=(1,), of="cross"),
    Column("local_bytes", "a nearer\nreplica has", "bytes",
           "of these, of partitions with a replica in its zone", of="local"),
    Column("redirects", "redirects", "count", "responses that named a preferred read replica"),
    Column("finding", "finding", "text", "how the traffic could stay in the zone", of=lambda r: _finding(r)),
)  # fmt: skip
_PRODUCE, _FETCH, _REPLICATION, _OTHER = range(4)
_TRAFFIC = ("produce", "fetch", "replication", "other")
_NONE = NO_INT32


def _replica(x: Rows) -> Any:
    """The broker that fetches as a follower; -1: none."""
    return np.maximum(x.top("fetch", "replica_id"), x.top("fetch", "replica_state_id"))


@once
def _traffic(x: Rows) -> Any:
    of_fetch = np.where(_replica(x) >= 0, _REPLICATION, _FETCH)
    return np.select((x.api_key == 0, x.api_key == 1), (_PRODUCE, of_fetch), _OTHER)


def _message_bytes(message: str, gathered: Gathered) -> Array:
    size = gathered.column(f"{message}_bytes") + 4 - gathered.column(f"{message}_cut_bytes")
    return np.where(gathered.column(f"{message}_first") != NO_TIME, size, 0)


def _batch_bytes(kind: str, gathered: Gathered) -> Array:
    """Those of batches. Of a batch whose end was not captured, or not sent, the message has less."""
    batches = gathered.facts(kind)
    sums = np.bincount(batches.exchange, np.maximum(batches["bytes"], 0), minlength=len(gathered))
    return sums.astype(np.int64)


#: The bytes of the message with each kind of batch, and of its batches.
_SIZES = {
    "batch": (partial(_message_bytes, "request"), partial(_batch_bytes, "batch")),
    "fetched batch": (partial(_message_bytes, "response"), partial(_batch_bytes, "fetched batch")),
}  # fmt: skip


@once
def _is_whole(x: Rows) -> Any:
    size, batches = _SIZES[x.fact]
    return x.each(batches) <= x.each(size)


def _rest(x: Rows, kind: str) -> Any:
    """The bytes of messages beside those of batches that count for themselves."""
    size, batches = (x.each(each) for each in _SIZES[kind])
    return size - np.where(batches <= size, batches, 0)


def _partition(x: Rows) -> Any:
    """Only a consumer's Fetch needs it."""
    return np.where(_traffic(x) == _FETCH, x.partition, _NONE)


#: Bytes by the ends of connections and by topic: first those of no record.
BYTES = counted(
    "zones.bytes",
    {**CLIENT, **BROKER, "traffic": NUMBER, "rack": TEXT, **PLACE},
    more={"traffic": _traffic, "rack": lambda x: x.top("fetch", "rack"), "topic": -1, "topic_id": -1,
          "partition": _NONE},
    other={**dict.fromkeys(("client_ip", *BROKER, "traffic", "rack", "topic", "topic_id"), KEPT), "partition": _NONE},
    bytes=total(lambda x: _rest(x, "batch") + _rest(x, "fetched batch")),
    to_client=total(lambda x: _rest(x, "fetched batch")), redirects=total(),
)  # fmt: skip
_IN_TOPIC: Any = {"topic": "topic", "topic_id": "topic_id", "partition": _partition}
_BATCHES = BYTES.also(
    tuple(_SIZES), _is_whole, _IN_TOPIC, bytes=lambda x: np.maximum(x.bytes, 0),
    to_client=lambda x: np.maximum(x.bytes, 0) if x.fact == "fetched batch" else 0,
)  # fmt: skip
_REDIRECTS = BYTES.also(("fetched partition",), lambda x: x.preferred_replica >= 0, _IN_TOPIC, redirects=1)
#: What Metadata says of brokers and replicas.
BROKERS = counted("zones.brokers", {"node": NUMBER, "host": TEXT, "rack": TEXT}, of=("metadata broker",), seen=total(1))
REPLICAS = counted("zones.replicas", PLACE, of=("replica",), more={"node": "item"}, seen=total(1))
FOLLOWERS = counted(
    "zones.followers", {"node": NUMBER, "ip": ADDRESS}, lambda x: _replica(x) >= 0, of=("fetch",),
    more={"node": _replica, "ip": "client_ip"}, seen=total(1),
)  # fmt: skip
COUNTS = (BYTES, _BATCHES, _REDIRECTS, BROKERS, REPLICAS, FOLLOWERS)


# ---------------------------------------------------------------- zones


class _Zones:
    """The zones of addresses and of broker ids."""

    def __init__(self, given: SectionInput) -> None:
        context, networks = given.context, given.options.get("zones") or ()
        self._tables = [context.hosts] if context.hosts is not None else []
        if networks:
            from ..hosts.host_entry import host_entry
            from ..hosts.host_table import HostTable

            labelled = (host_entry(network, zone, labels={"zone": zone}) for network, zone in networks)
            self._tables.insert(0, HostTable(labelled))
        self._span = context.first or 0, context.last or 0
        self._known: dict[str, str | None] = {}  # by address, from files
        self._by_ip: dict[str, str] = {}
        self._by_node: dict[int, str] = {}
        for row in given.rows(BROKERS.name):
            host_text, rack_text = context.text(row["host"]), context.text(row["rack"])
            if zone := self._in_files(host_text) or rack_text:
                self._by_node[row["node"]] = zone
                if host_text:
                    self._by_ip[host_text] = zone
        for row in given.rows(FOLLOWERS.name):
            address = context.address(row["ip"])
            if address is not None and row["node"] in self._by_node:
                self._by_ip.setdefault(address, self._by_node[row["node"]])
        keys = given.keys(BYTES.name)
        pairs = distinct_values(np.stack([keys["client_ip"], keys["rack"]], axis=1), axis=0)
        for ip, rack in pairs[pairs[:, 1] >= 0].tolist():
            address, named = context.address(ip), context.text(rack)
            if address is not None and named:
                self._by_ip.setdefault(address, named)

    def of(self, address: str | None, client_id: str | None = None) -> str | None:
        """The zone of an address, at which this client is."""
        return self._in_files(address) or self._by_ip.get(address or "") or zone_in_client_id(client_id)

    def of_node(self, node: int) -> str | None:
        return self._by_node.get(node)

    def _in_files(self, address: str | None) -> str | None:
        if not address or not self._tables:
            return None
        if address not in self._known:
            found = (table.zone(address, *self._span) for table in self._tables)
            self._known[address] = next((zone for zone in found if zone), None)
        return self._known[address]


#: How clients of brokers that store in object stores say where they are.
_ZONE_IN_ID = re.compile(r"(?:^|[^A-Za-z0-9])(?:ws_az|diskless_az)=([A-Za-z0-9._-]{1,64})")


def zone_in_client_id(client_id: str | None) -> str | None:
    found = _ZONE_IN_ID.search(client_id or "")
    return found and found[1]


class _Part(NamedTuple):
    """One row of BYTES with names and zones."""

    client_id: str | None
    client_ip: str | None
    client_zone: str | None
    broker_zone: str | None
    traffic: int
    rack: str | None
    topic: str | None
    to_broker: int
    to_client: int
    redirects: int
    local: int
    has_replicas: bool

    @property
    def crosses(self) -> bool:
        return None not in (self.client_zone, self.broker_zone) and self.client_zone != self.broker_zone


def _parts(given: SectionInput) -> Iterator[_Part]:
    context, zones = given.context, _Zones(given)
    nearest: dict[tuple[str | None, int], set[str | None]] = {}
    for row in given.rows(REPLICAS.name):
        place = context.topic(row["topic"], row["topic_id"]), row["partition"]
        nearest.setdefault(place, set()).add(zones.of_node(row["node"]))
    for row in given.rows(BYTES.name):
        topic = context.topic(row["topic"], row["topic_id"])
        address, to_client = context.address(row["client_ip"]), row["to_client"]
        client_id, replicas = context.text(row["client_id"]), nearest.get((topic, row["partition"]))
        found = _Part(
            client_id, address, zones.of(address, client_id), zones.of(context.address(row["broker_ip"])),
            row["traffic"], context.text(row["rack"]) or None, topic, row["bytes"] - to_client, to_client,
            row["redirects"], 0, replicas is not None,
        )  # fmt: skip
        if found.crosses and row["traffic"] == _FETCH and found.client_zone in (replicas or ()):
            found = found._replace(local=to_client)
        yield found


# ---------------------------------------------------------------- tables


def tables(given: SectionInput) -> Sequence[ReportTable]:
    """Traffic between zones before traffic within them, the most bytes first, then readers from other zones."""
    parts = list(_parts(given))
    return _zone_table(parts), _reader_table(parts)


def _zone_table(parts: Sequence[_Part]) -> ReportTable:
    rows: dict[tuple[str | None, str | None, str | None, int, bool], list[int]] = {}
    for part in parts:
        key = part.client_zone, part.broker_zone, part.topic, part.traffic, part.crosses
        sums = rows.setdefault(key, [0, 0, 0])
        for place, number in enumerate((part.to_broker, part.to_client, part.local)):
            sums[place] += number
    total = sum(sums[0] + sums[1] for sums in rows.values())
    crossing = sum(sums[0] + sums[1] for key, sums in rows.items() if key[4])
    known = sum(sums[0] + sums[1] for key, sums in rows.items() if None not in key[:2])
    ordered = sorted(rows.items(), key=lambda item: (not item[0][4], -item[1][0] - item[1][1], str(item[0])))
    values = in_columns(ZONES, (
        {
            "client_zone": client, "broker_zone": broker, "topic": topic, "traffic": _TRAFFIC[traffic],
            "to_broker_bytes": to_broker, "to_client_bytes": to_client, "crosses": crosses,
            "bytes_share": (to_broker + to_client) / total, "local_bytes": local,
        }
        for (client, broker, topic, traffic, crosses), (to_broker, to_client, local) in ordered
        if total and to_broker + to_client
    ))  # fmt: skip
    unknown = f"; of {size(total - known)} a zone is unknown" if known < total else ""
    notes = [
        f"{size(crossing)} of {size(total)} cross zones ({share(crossing / total if total else 0)}){unknown}.",
        "A zone is a broker's rack or a consumer's client.rack, or is in files of --zones and --hosts, or client ids.",
    ]
    if not known:
        values = []
    return ReportTable(
        "zones", "Traffic between zones", ZONES, values, tuple(notes) if values else (),
        empty="no zones are known: Metadata names no racks of these brokers, and no FILE of --zones or --hosts does",
    )  # fmt: skip


class _Reader:
    """`part`: the first of its parts."""

    def __init__(self, part: _Part) -> None:
        self.part = part
        self.cross = self.local = self.redirects = 0
        self.has_replicas = False


def _reader_table(parts: Sequence[_Part]) -> ReportTable:
    rows: dict[tuple[Any, ...], _Reader] = {}
    for part in parts:
        if part.traffic == _FETCH and part.topic is not None and part.crosses:
            key = part.client_id, part.client_ip, part.client_zone, part.rack, part.topic
            row = rows.setdefault(key, _Reader(part))
            row.cross += part.to_client
            row.local += part.local
            row.redirects += part.redirects
            row.has_replicas |= part.has_replicas
    values = largest_first(READERS, in_columns(READERS, rows.values()), "cross_bytes")
    return ReportTable(
        "zone_readers", "Readers from other zones", READERS, values, empty="no consumer reads from another zone"
    )


def _finding(row: _Reader) -> str:
    if row.redirects:
        return "it was sent to a replica in its zone"
    if not row.cross:
        return "-"
    if not row.local:
        return "no replica in its zone" if row.has_replicas else "no Metadata names its replicas"
    if row.part.rack is None:
        return "set client.rack"
    return "the broker selects no replica by rack: replica.selector.class"


SECTION = Section(
    "zones", "What does cross-zone traffic cost?",
    columns={"zones": ZONES, "zone_readers": READERS}, tables=tables, counts=COUNTS,
)  # fmt: skip
