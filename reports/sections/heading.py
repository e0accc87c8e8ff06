"""What the capture is: its span, files, packets, link types, brokers and clients, drops, and how much is encrypted."""

from __future__ import annotations

from ..batch import LIVE, P_FOREIGN, P_KAFKA, P_TLS, Context, endpoint
from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.rollup import group_columns
from ..model import Column, Table, Value

COLUMNS = (
    Column("files", "files", "count", "capture files read"),
    Column("bytes", "size", "bytes", "their size"),
    Column("first", "first packet", "time", "its time"),
    Column("last", "last packet", "time", "its time"),
    Column("span_ns", "span", "ns", "from the first to the last packet"),
    Column("packets", "packets", "count", "packets in the files"),
    Column("interrupted", "interrupted", "flag", "whether reading was interrupted: only what came before is counted"),
    Column("link_types", "link types", "texts", "link types of the packets"),
    Column("interfaces", "interfaces", "texts", "network interfaces that were watched; none for captures"),
    Column("drops", "drops", "count", "packets lost while capturing, as the files tell; null: they do not tell"),
    Column("connections", "connections", "count", "TCP connections"),
    Column("kafka_connections", "Kafka", "count", "those that speak Kafka"),
    Column("tls_connections", "TLS", "count", "those that are encrypted"),
    Column("foreign_connections", "other", "count", "those that speak something else"),
    Column("encrypted_share", "encrypted", "share", "TLS, of the TCP payload"),
    Column(
        "filters", "only", "text", "filters that were asked for; requests, brokers and clients are those they let pass"
    ),
    Column("requests", "requests", "count", "Kafka requests"),
    Column("brokers", "brokers", "texts", "address and port of each broker, the one with the most requests first"),
    Column("broker_count", "brokers", "count", "number of brokers"),
    Column("client_count", "clients", "count", "different client_ids"),
)


def heading(counts: ReportCounts, context: Context, selected: str | None = None) -> Table:
    """One row. `selected`: the selection of this report as the user wrote it."""
    c = group_columns(counts.groups, tally.GROUP_KEY)
    requests = counts.groups.value_rows()[:, :4].sum(axis=1)
    used: dict[str, int] = {}
    for ip, port, n in zip(c["broker_ip"].tolist(), c["broker_port"].tolist(), requests.tolist(), strict=True):
        if ip >= 0:
            broker = endpoint(context.address(ip), port)
            used[broker] = used.get(broker, 0) + n
    brokers = sorted(used, key=lambda broker: (-used[broker], broker))
    told = [f.drops for f in context.files if f.drops is not None]
    connections = context.connection_counts
    links = dict.fromkeys(link for f in context.files for link in f.link_types)
    first, last = context.first, context.last
    row: tuple[Value, ...] = (
        len(context.files), sum(f.bytes for f in context.files), first, last,
        None if first is None or last is None else last - first, context.packets,
        context.interrupted, tuple(links), tuple(f.path for f in context.files if f.kind == LIVE),
        sum(told) if told else None, connections.total("connections"),
        *(connections.of_protocol(p) for p in (P_KAFKA, P_TLS, P_FOREIGN)),
        context.encrypted_share, selected, int(requests.sum()), tuple(brokers), len(brokers),
        len(set(c["client_id"][requests > 0].tolist())),
    )  # fmt: skip
    return Table("heading", "Capture", COLUMNS, [row], whole=True)


FILE_COLUMNS = (
    Column("path", "file", "text", "path as it was given"),
    Column("format", "format", "text", "format and compression", 1),
    Column("first_packet", "first\npacket", "packet", "number of its first packet over the whole input"),
    Column("packets", "packets", "count", "packets in it"),
    Column("bytes", "size", "bytes", "its size, after decompression", 1),
    Column("link_types", "link types", "texts", "link types of its packets", 2),
    Column("first", "from", "time", "time of its first packet"),
    Column("last", "to", "time", "time of its last packet"),
    Column("drops", "drops", "count", "packets lost while capturing, as the file tells; null: it does not tell", 1),
    Column("duplicates", "dupli-\ncates", "count", "packets that a file above holds too: equal times, equal bytes", 1),
    Column("damage", "damage", "text", "what of it could not be read", 1),
)


def files(context: Context) -> Table:
    """One row for each capture, in the order read."""
    rows: list[tuple[Value, ...]] = [
        (
            f.path, f.kind or None, f.first_packet, f.packets, f.bytes, tuple(f.link_types), f.first,
            f.last, f.drops, f.duplicates, f.damage,
        )
        for f in context.files
    ]  # fmt: skip
    notes = ("Packet numbers in this report count over all files, in this order.",)
    return Table("files", "Files", FILE_COLUMNS, rows, notes, shown_from=2)  # of one the heading says it all
