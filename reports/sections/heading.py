"""The heading of a report: time span, files, packets, link types, connections, brokers, clients, drops, encryption."""

from __future__ import annotations

from kafkatap.dissector.dtypes import IN_FLIGHT, ORPHAN_RESPONSE

from ..batch import LIVE, Context, endpoint
from ..connection_words import P_FOREIGN, P_KAFKA, P_TLS
from ..counting import tally
from ..counting.connection_counts import connection_totals
from ..counting.counts import ReportCounts
from ..counting.rollup import group_columns
from ..encryption import encryption_of
from ..model import Column, ReportTable, Row, in_columns

COLUMNS = (
    Column("files", "files", "count", "capture files read"),
    Column("bytes", "size", "bytes", "size of the capture files; of a live capture, of a pcap with its packets"),
    Column("first", "first packet", "time", "time of the first packet"),
    Column("last", "last packet", "time", "time of the last packet"),
    Column("span_ns", "span", "ns", "time from the first to the last packet"),
    Column("packets", "packets", "count", "packets in the files"),
    Column("interrupted", "interrupted", "flag",
           "true: reading was interrupted, and the report covers only what was read"),
    Column("link_types", "link types", "texts", "link types of the packets"),
    Column("interfaces", "interfaces", "texts", "captured network interfaces; empty for capture files"),
    Column("drops", "drops", "count", "packets that were dropped during capture; null: the files do not record it"),
    Column("connections", "connections", "count", "TCP connections"),
    Column("left_out_connections", "left out", "count",
           "more connections, which ended first: `kafkatap live` keeps rows of the last ones (--max-connections)"),
    Column("kafka_connections", "Kafka", "count", "connections that carry Kafka"),
    Column("tls_connections", "TLS", "count", "connections that are encrypted (TLS), and were not decrypted"),
    Column("decrypted_connections", "decrypted", "count", "connections that are encrypted (TLS), and were decrypted"),
    Column("foreign_connections", "other", "count", "connections that carry another protocol"),
    Column("encrypted_share", "encrypted", "share", "share of the TCP payload that is TLS, and was not decrypted"),
    Column("decrypted_share", "decrypted", "share", "share of the TCP payload that is TLS, and was decrypted"),
    Column("encryption", "encryption", "text", "how much is TLS, how much was decrypted, and why the rest was not"),
    Column("filters", "only", "text", "selection of this report; requests, brokers and clients count within it"),
    Column("requests", "requests", "count", "Kafka requests"),
    Column("in_flight", "in flight at the end", "count", "requests whose response may still come after the capture: "
           "their connection is open, and they have not waited for long (--late)"),
    Column("failed_exchanges", "failed", "count", "exchanges whose response has a non-zero error code"),
    Column("error_codes", "error codes", "count", "non-zero error codes in the responses"),
    Column("brokers", "brokers", "texts", "address and port of each broker, most requests first", end="broker"),
    Column("broker_count", "brokers", "count", "number of brokers"),
    Column("client_count", "clients", "count", "rows of the table of clients: client_id, address and software"),
)  # fmt: skip


def heading(counts: ReportCounts, context: Context, clients: int, selected: str | None = None) -> ReportTable:
    """One row. `clients`: how many the table of clients has. `selected`: the selection as the user wrote it."""
    c = group_columns(counts.groups, tally.GROUP_KEY)
    outcomes = counts.groups.value_rows()[:, :ORPHAN_RESPONSE]
    requests, in_flight = outcomes.sum(axis=1), int(outcomes[:, IN_FLIGHT].sum())
    failed, codes = counts.groups.value_rows()[:, [tally.V_FAILED, tally.V_ERROR_CODES]].sum(axis=0).tolist()
    used: dict[str, int] = {}
    for ip, port, n in zip(c["broker_ip"].tolist(), c["broker_port"].tolist(), requests.tolist(), strict=True):
        if ip >= 0:
            broker = endpoint(context.address(ip), port)
            used[broker] = used.get(broker, 0) + n
    brokers = sorted(used, key=lambda broker: (-used[broker], broker))
    drops = [f.drops for f in context.files if f.drops is not None]
    connections = connection_totals(context)
    encryption = encryption_of(context)
    links = dict.fromkeys(link for f in context.files for link in f.link_types)
    first, last = context.first, context.last
    row: Row = {
        "files": len(context.files), "bytes": sum(f.bytes for f in context.files), "first": first, "last": last,
        "span_ns": None if first is None or last is None else last - first, "packets": context.packets,
        "interrupted": context.interrupted, "link_types": tuple(links),
        "interfaces": tuple(f.path for f in context.files if f.kind == LIVE), "drops": sum(drops) if drops else None,
        "connections": connections.total("connections"), "left_out_connections": context.left_out_connections,
        "kafka_connections": connections.of_protocol(P_KAFKA), "tls_connections": connections.of_protocol(P_TLS),
        "decrypted_connections": encryption.decrypted_connections,
        "foreign_connections": connections.of_protocol(P_FOREIGN), "encrypted_share": encryption.encrypted,
        "decrypted_share": encryption.decrypted, "encryption": encryption.in_words() or None, "filters": selected,
        "requests": int(requests.sum()), "in_flight": in_flight, "failed_exchanges": failed, "error_codes": codes,
        "brokers": tuple(brokers), "broker_count": len(brokers), "client_count": clients,
    }  # fmt: skip
    return ReportTable("heading", "Capture", COLUMNS, in_columns(COLUMNS, [row]), whole=True)


FILE_COLUMNS = (
    Column("path", "path", "text", "path of the capture"),
    Column("format", "format", "text", "format and compression", 1, of=lambda f: f.kind or None),
    Column("first_packet", "first\npacket", "packet", "number of its first packet, counted over all files"),
    Column("packets", "packets", "count", "packets in it"),
    Column("bytes", "size", "bytes", "size after decompression", 1),
    Column("link_types", "link types", "texts", "link types of its packets", 2, of=lambda f: tuple(f.link_types)),
    Column("first", "first", "time", "time of its first packet"),
    Column("last", "last", "time", "time of its last packet"),
    Column("drops", "drops", "count", "packets that were dropped during capture; null: the file does not record it", 1),
    Column("duplicates", "dupli-\ncates", "count",
           "packets in it that were captured twice, in this file or in another one; they count once", 1),
    Column("damage", "damage", "text", "part of the file that cannot be read, and why", 1),
)  # fmt: skip


def files(context: Context) -> ReportTable:
    """One row for each capture, in the order read."""
    rows = in_columns(FILE_COLUMNS, context.files)
    notes = ("Packet numbers in this report count over all files, in this order.",)
    return ReportTable("files", "Files", FILE_COLUMNS, rows, notes, shown_from=2)  # the heading covers a single file
