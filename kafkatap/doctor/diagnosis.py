"""`diagnose`: findings and facts about captures as the tables of a report. `CHECKS`: what finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from kafkatap.reassembly.link_types import link_name
from kafkatap.reports.connection_words import PROTOCOLS
from kafkatap.reports.findings import NOTE, SEVERITIES, Finding
from kafkatap.reports.hosts.named_tables import with_hosts
from kafkatap.reports.model import Column, Curves, Report, ReportTable, Row, Value, in_columns
from kafkatap.reports.sections.heading import files, heading
from kafkatap.reports.sections.ledger import ledger, loss_warnings, unknown_wait_warnings

from . import content_checks, file_checks, stream_checks
from .capture_commands import capture_commands
from .observed import Observed
from .stream_checks import ends, gap_bytes, halves

FINDINGS = (
    Column("check", "check", "text", "name of the check", of="id"),
    Column("severity", "severity", "text", "error: reports are wrong or empty; warning: something is missing; note"),
    Column("what", "what", "text", "the finding in a sentence", end="sentence", of="text"),
    Column("evidence", "evidence", "text", "the numbers behind it", end="sentence"),
    Column("effect", "effect", "text", "what it does to reports"),
    Column("remedy", "remedy", "text", "what to do about it"),
    Column("numbers", "numbers", "numbers", "the numbers that it rests on, with their units in their names", 9,
           of=lambda f: tuple(f.numbers.items())),
)  # fmt: skip
CHECKED = (
    Column("check", "check", "text", "name of the check"),
    Column("looks_for", "looks for", "text", "what it looks for"),
    Column("findings", "findings", "count", "number of its findings"),
)
GAPS = (
    Column("client", "client's end", "text", "address and port of the client", end="client"),
    Column("broker", "broker", "text", "address and port of the broker", end="broker"),
    Column("protocol", "protocol", "text", "kafka, tls, foreign or unknown"),
    Column("client_gap_bytes", "from client:\nmissing", "bytes", "bytes of the client that are in no packet"),
    Column("client_gap_share", "share", "share", "of the client's bytes"),
    Column("client_gaps", "gaps", "count", "number of gaps in the client's bytes"),
    Column("broker_gap_bytes", "from broker:\nmissing", "bytes", "bytes of the broker that are in no packet"),
    Column("broker_gap_share", "share", "share", "of the broker's bytes"),
    Column("broker_gaps", "gaps", "count", "number of gaps in the broker's bytes"),
    Column("acknowledged_bytes", "acknow-\nledged", "bytes",
           "of the missing bytes, those that the receiver acknowledged: the capture lost them; null: unknown"),
    Column("retransmitted_bytes", "retrans-\nmitted", "bytes", "bytes that were sent again: the network lost them"),
)  # fmt: skip
INTERFACES = (
    Column("path", "file", "text", "path of the capture"),
    Column("number", "number", "count", "number of the interface in the capture"),
    Column("name", "name", "text", "name of the interface, if the capture has it"),
    Column("link_type", "link type", "text", "its link layer"),
    Column("snap_length", "snap length", "bytes", "bytes of a packet that were to be kept; null: all"),
    Column("filter", "filter", "text", "capture filter, if the capture has it"),
    Column("program", "program", "text", "program that wrote the capture, if it says so"),
)
PLACE = (
    Column("handshakes", "handshakes", "count", "complete handshakes of Kafka and TLS connections"),
    Column("broker_rtt_ns", "to the broker", "ns", "median time from SYN to SYN-ACK: to the broker and back"),
    Column("client_rtt_ns", "to the client", "ns", "median time from SYN-ACK to ACK: to the client and back"),
)
COMMANDS = (
    Column("command", "command", "text", "a capture command for these brokers"),
    Column("purpose", "purpose", "text", "what it is good for"),
)
#: The columns of each table.
TABLES = {
    "findings": FINDINGS, "checks": CHECKED, "gap_connections": GAPS, "interfaces": INTERFACES, "capture_point": PLACE,
    "capture_commands": COMMANDS,
}  # fmt: skip
#: Connections in the table of gaps.
MOST_CONNECTIONS = 1_000


def diagnose(seen: Observed) -> Report:
    """The diagnosis of captures as a report: the tables of TABLES, `files`, the heading and the ledger."""
    found = find(seen)
    findings = ReportTable("findings", "Findings", FINDINGS, in_columns(FINDINGS, found), empty="no problem found")
    checked = in_columns(CHECKED, (
        {"check": check.name, "looks_for": check.question, "findings": sum(f.id == check.name for f in found)}
        for check in CHECKS
    ))  # fmt: skip
    broker, client, count = halves(seen)
    place: list[tuple[Value, ...]] = [(count, broker, client)] if count else []
    tables: tuple[ReportTable, ...] = (
        findings,
        ReportTable("checks", "Checks", CHECKED, checked, whole=True),
        _gaps(seen),
        _interfaces(seen),
        ReportTable("capture_point", "Round trips from the capture point", PLACE, place, empty="no handshake"),
        ReportTable("capture_commands", "Better capture commands", COMMANDS, list(capture_commands(seen)), whole=True),
        files(seen.context),
    )
    if (hosts := seen.context.hosts) is not None:
        span = seen.context.first or 0, seen.context.last or 0
        tables = tuple(with_hosts(table, hosts, span) for table in tables)
    clients = len(seen.exchanges.clients)
    warnings = (*loss_warnings(seen.context), *unknown_wait_warnings(seen.counts))
    return Report(heading(seen.counts, seen.context, clients), tables, ledger(seen.context), warnings, Curves())


def has_problems(report: Report) -> bool:
    """Whether a diagnosis has an error or a warning."""
    table = report.table("findings")
    return any(row["severity"] != NOTE for row in table.named_rows())


def _gaps(seen: Observed) -> ReportTable:
    rows = seen.context.connections
    missing = gap_bytes(rows)
    order = np.argsort(-missing, kind="stable")[:MOST_CONNECTIONS]
    known = dict(zip(seen.streams["connection"].tolist(), seen.streams["acknowledged"].tolist(), strict=True))
    made: list[Row] = []
    for i in order[missing[order] > 0].tolist():
        row = rows[i]
        client, _, broker = ends(seen.context, row).partition(" to ")
        acknowledged = known.get(int(row["connection"]), -1)
        values: dict[str, Value] = {
            "client": client, "broker": broker, "protocol": PROTOCOLS[row["protocol"]],
            "acknowledged_bytes": acknowledged if acknowledged >= 0 else None,
            "retransmitted_bytes": int(row["client_retransmitted_bytes"] + row["broker_retransmitted_bytes"]),
        }  # fmt: skip
        for end in ("client", "broker"):
            lost = int(row[f"{end}_gap_bytes"])
            whole = lost + int(row[f"{end}_bytes"])
            values |= {
                f"{end}_gap_bytes": lost, f"{end}_gap_share": lost / whole if whole else None,
                f"{end}_gaps": int(row[f"{end}_gaps"]),
            }  # fmt: skip
        made.append(values)
    return ReportTable("gap_connections", "Connections with gaps", GAPS, in_columns(GAPS, made), empty="no gaps")


def _interfaces(seen: Observed) -> ReportTable:
    rows = in_columns(INTERFACES, (
        {"path": path, "number": n, "name": i.name or None, "link_type": link_name(i.link_type),
         "snap_length": i.snap_length or None, "filter": i.filter or None, "program": head.program or None}
        for path, head in seen.heads.items()
        for n, i in enumerate(head.interfaces)
    ))  # fmt: skip
    return ReportTable("interfaces", "Interfaces", INTERFACES, rows, empty="the captures do not name any")


class Check(NamedTuple):
    """`name`: of its findings. `question`: what it looks for."""

    name: str
    question: str
    functions: tuple[Callable[[Observed], Iterator[Finding]], ...]


CHECKS = (
    Check("files", "damaged files, and files that are cut short", (file_checks.damage,)),
    Check("content", "no Kafka, or mostly something else", (content_checks.no_kafka, content_checks.other_traffic)),
    Check("link types", "link layers that are not read, invalid headers, IP fragments", (file_checks.link_types,)),
    Check("snap length", "packets that are cut", (file_checks.snap_length,)),
    Check("extracts", "files that kafkatap extract wrote", (file_checks.extracts,)),
    Check("drops", "packets that the capture program dropped", (file_checks.drops,)),
    Check("gaps", "bytes in no packet: lost by the capture or by the network", (stream_checks.gaps,)),
    Check("directions", "connections of which one direction is missing", (stream_checks.directions,)),
    Check("copies", "packets that were captured twice", (file_checks.copies,)),
    Check(
        "clock",
        "steps of the clock, clocks that differ, coarse time stamps",
        (file_checks.clock, file_checks.clocks, file_checks.resolution),
    ),
    Check("order", "packets that are not in time order", (file_checks.order,)),
    Check("encryption", "connections with TLS", (content_checks.encryption,)),
    Check("handshakes", "TLS handshakes that fail, certificates that expire", (content_checks.handshakes,)),
    Check("interfaces", "several interfaces in one capture, the interface 'any'", (file_checks.interfaces,)),
    Check("starts", "connections that began before the capture", (stream_checks.starts,)),
    Check("network", "retransmissions", (stream_checks.network,)),
    Check("place", "captures far from the brokers", (stream_checks.place,)),
    Check("ports", "ports of brokers of which the capture has nothing", (content_checks.listeners,)),
    Check("brokers", "only one broker of a cluster", (content_checks.brokers,)),
    Check("proxies", "clients hidden behind a load balancer", (content_checks.proxies,)),
    Check("twins", "connections before and behind NAT, or both legs of a proxy", (content_checks.twins,)),
    Check("length", "captures too short for percentiles", (content_checks.length,)),
)


def find(seen: Observed) -> list[Finding]:
    """All findings: the worst first, and then in the order of the checks."""
    found = [finding for check in CHECKS for function in check.functions for finding in function(seen)]
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))
