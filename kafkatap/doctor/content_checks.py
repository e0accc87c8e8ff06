"""Checks of what is in the streams: Kafka at all, TLS, other protocols, one broker of several, proxies, twins, its
length."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kafkatap.reports import units
from kafkatap.reports.batch import endpoint
from kafkatap.reports.commands import command
from kafkatap.reports.connection_words import P_FOREIGN, P_KAFKA, P_TLS, P_UNKNOWN, WERE_DECRYPTED
from kafkatap.reports.counting.connection_counts import is_one_sided
from kafkatap.reports.encryption import encryption_of
from kafkatap.reports.finding_words import counted
from kafkatap.reports.findings import ERROR, NOTE, WARNING, Finding
from kafkatap.reports.sections.tls_findings import tls_findings
from kafkatap.reports.sections.twin_findings import findings_of
from kafkatap.reports.twins import may_be_twins

from .finding import finding, share, some
from .observed import Observed

#: Shares of the payload that are TLS, not decrypted, from which on it is a note or a warning; and that are not Kafka.
TLS_NAMED, TLS_MUCH, OTHER_MUCH = 0.005, 0.2, 0.5
#: A capture with fewer answered requests, or shorter, ns, is short.
FEW, SHORT_NS = 100, 5_000_000_000
#: So many client ids behind one address look like a load balancer.
MANY_CLIENTS = 20
_NAMES = {P_TLS: "TLS", P_FOREIGN: "another protocol", P_UNKNOWN: "nothing that tells"}


def no_kafka(seen: Observed) -> Iterator[Finding]:
    """Captures without any Kafka request."""
    if any(seen.context.ledger["requests"].values()):
        return
    context, rows = seen.context, seen.context.connections
    packets = context.ledger["packets"]
    remedy = "capture on the host of a broker, with a filter on its port: 'tcp port 9092'"
    if not context.packets:
        what, evidence = "the capture has no packets", f"{counted(len(context.files), 'file')}"
        remedy = "check the interface, the filter and the time of the capture"
    elif not len(rows):
        kinds = {"not IP": packets.get("not_ip", 0), "IP without TCP": packets.get("not_tcp", 0)}
        kinds["with cut headers"] = packets.get("headers_not_captured", 0)
        kinds["of an unread link type"] = packets.get("unknown_link_type", 0)
        what = "there is no TCP connection in the capture"
        evidence = some([f"{counted(n, 'packet')} {kind}" for kind, n in kinds.items() if n])
    else:
        what, evidence = "there is no Kafka in the capture", f"{counted(len(rows), 'connection')}: {ports(seen)}"
        if (rows["protocol"] == P_KAFKA).any():
            what = "there is Kafka in the capture, but no whole request"
        elif (rows["protocol"] == P_TLS).mean() > OTHER_MUCH:
            return  # the finding on TLS says it
        elif (rows["protocol"] == P_UNKNOWN).any():
            remedy += "; if the connections are Kafka and began before the capture, capture longer, or try --port"
    yield finding(
        "content", ERROR, what, evidence, "all reports are empty", remedy,
        packets=context.packets, connections=len(rows),
    )  # fmt: skip


def ports(seen: Observed) -> str:
    """The ports of servers, those with most bytes first: `443 (3 connections, TLS)`."""
    rows = seen.context.connections
    found: dict[int, list[int]] = {}
    for port, protocol, client, broker in zip(
        *(rows[name].tolist() for name in ("broker_port", "protocol", "client_bytes", "broker_bytes")), strict=True
    ):
        entry = found.setdefault(port, [0, 0, protocol])
        entry[0] += client + broker
        entry[1] += 1
        entry[2] = max(entry[2], protocol)
    largest = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))
    return some(
        [f"port {port} ({counted(n, 'connection')}, {_NAMES.get(kind, 'Kafka')})" for port, (_, n, kind) in largest]
    )  # fmt: skip


def encryption(seen: Observed) -> Iterator[Finding]:
    """TLS: what was decrypted, why the rest was not, and what would help."""
    context, rows = seen.context, seen.context.connections
    is_hidden, is_read = rows["protocol"] == P_TLS, np.isin(rows["tls_decryption"], WERE_DECRYPTED)
    hidden, read = int(is_hidden.sum()), int(is_read.sum())
    found = encryption_of(context)
    has_kafka = any(context.ledger["requests"].values())
    if not read and (not hidden or (found.encrypted < TLS_NAMED and has_kafka)):
        return
    tls = rows[is_hidden | is_read]
    places = {endpoint(context.address(ip), port) for ip, port in zip(
        tls["broker_ip"].tolist(), tls["broker_port"].tolist(), strict=True)}  # fmt: skip
    evidence = f"{found.in_words()}; to {some(sorted(places), most=3)}"
    if not hidden:
        yield finding(
            "encryption", NOTE, f"{counted(read, 'connection')} {_are(read)} encrypted (TLS), and decrypted", evidence,
            "none: the key log has their secrets", "keep the key log as safe as the data",
            encrypted_connections=0, decrypted_connections=read, encrypted_share=0.0,
        )  # fmt: skip
        return
    rest = f"; {counted(read, 'more was', 'more were')} decrypted" if read else ""
    yield finding(
        "encryption", NOTE if has_kafka and found.encrypted < TLS_MUCH else WARNING if has_kafka else ERROR,
        f"{counted(hidden, 'connection')} {_are(hidden)} encrypted (TLS), and not decrypted{rest}"
        + ("" if has_kafka else ", and nothing else is Kafka"),
        evidence,
        "no requests, errors or clients of them in reports; the section tls has their versions, handshakes and "
        "estimated response times",
        f"{found.help().rstrip('.') or 'see docs/tls.md'}; or capture a plaintext listener, or behind the proxy that "
        "ends TLS",
        encrypted_connections=hidden, decrypted_connections=read, encrypted_share=float(found.encrypted),
    )  # fmt: skip


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def handshakes(seen: Observed) -> Iterator[Finding]:
    """TLS handshakes that failed, and certificates that expire."""
    effects = {
        "wrong_port": (
            "first bytes of connections, and how brokers answered them", "there are clients that cannot connect",
            "set security.protocol as the listener has it",
        ),
        "tls_failed": (
            "alerts of TLS, and sizes of encrypted ones", "there are clients that cannot connect",
            "the section tls has the reason for each client",
        ),
        "certificate": (
            "certificates of TLS", "clients refuse a certificate that has expired",
            "renew the certificate of the broker",
        ),
    }  # fmt: skip
    for one in tls_findings(seen.context):
        if one.id in effects:
            what = f"the certificate {one.text}" if one.id == "certificate" else one.text
            evidence, effect, remedy = effects[one.id]
            yield finding("handshakes", NOTE, what, evidence, effect, remedy, **one.numbers)


def other_traffic(seen: Observed) -> Iterator[Finding]:
    """Much payload that is not Kafka."""
    places = seen.context.ledger["payload bytes"]
    other, total = places.get("not_kafka", 0), places.get("total", 0)
    if not any(seen.context.ledger["requests"].values()) or other < OTHER_MUCH * total:
        return
    yield finding(
        "content", NOTE, f"{share(other, total)} of the payload is not Kafka",
        ports(seen), "none, but the capture is larger and drops packets earlier",
        "filter on the brokers' ports while you capture", other_bytes=other, other_share=other / total,
    )  # fmt: skip


def length(seen: Observed) -> Iterator[Finding]:
    """Captures that are too short for percentiles."""
    context = seen.context
    answered = int(seen.exchanges.outcomes[0])
    if not any(context.ledger["requests"].values()) or context.first is None or context.last is None:
        return
    span = context.last - context.first
    if answered >= FEW and span >= SHORT_NS:
        return
    if span >= SHORT_NS and is_one_sided(context.connections).any():
        return  # the missing direction has the answers, not the time before or after: see directions
    yield finding(
        "length", NOTE, "the capture is short",
        f"{counted(answered, 'answered request')} in {units.duration(span)}",
        "percentiles beyond p90 rest on a few requests, and rates and rebalances of minutes do not show",
        "capture for at least a minute under the usual load", answered=answered, span_ns=span,
    )  # fmt: skip


def listeners(seen: Observed) -> Iterator[Finding]:
    """Ports of captured hosts that Metadata names, and of which the capture has nothing: a filter on the wrong port."""
    context = seen.context
    rows = context.connections
    ends = set(zip(rows["broker_ip"].tolist(), rows["broker_port"].tolist(), strict=True))
    captured = {(context.address(ip), port) for ip, port in ends}
    kafka = rows[rows["protocol"] == P_KAFKA]
    is_broker = np.isin(kafka["client_ip"], np.unique(kafka["broker_ip"])) & (kafka["client_ip"] != kafka["broker_ip"])
    kafka = kafka[~is_broker]  # brokers are clients of others, whose hosts were not captured
    hosts = {context.address(ip) for ip in np.unique(kafka["broker_ip"]).tolist()}
    named = {place for places in seen.places.values() for place in places if place[0] in hosts}
    missing = sorted(named - captured)
    if not missing:
        return
    used = sorted({(context.address(ip), port) for ip, port in zip(
        kafka["broker_ip"].tolist(), kafka["broker_port"].tolist(), strict=True)})  # fmt: skip
    shown = some([endpoint(host, port) for host, port in missing])
    is_all = not named & captured
    seen_there = some([endpoint(host, port) for host, port in used])
    ports = " or tcp port ".join(str(port) for _, port in missing[:3])
    yield finding(
        "ports", WARNING if is_all else NOTE,
        f"the capture has nothing of {shown}, {'where Metadata sends clients' if is_all else 'which Metadata names'}",
        f"of the captured hosts it has {seen_there}"
        + (", which no broker advertises: clients only begin there" if is_all else ""),
        "most requests of these clients are missing" if is_all else "what clients ask there is missing, if they use it",
        f"capture these ports too: 'tcp port {ports}'", ports=len(missing),
    )  # fmt: skip


def brokers(seen: Observed) -> Iterator[Finding]:
    """One broker of a cluster that has more."""
    rows = seen.context.connections
    rows = rows[rows["protocol"] == P_KAFKA]
    rows = rows[~np.isin(rows["client_ip"], np.unique(rows["broker_ip"]))]  # brokers are clients of other brokers
    hosts = {seen.context.address(ip) for ip in np.unique(rows["broker_ip"]).tolist()}
    used = np.unique(rows["broker_port"])
    are_on_one_host = len({name.rpartition(":")[0] or name for name in seen.nodes.values()}) < 2
    if len(seen.nodes) < 2 or len(hosts) != 1 or (are_on_one_host and len(used) >= len(seen.nodes)):
        return
    names = [seen.nodes[node] for node in sorted(seen.nodes)]
    yield finding(
        "brokers", NOTE, f"one broker of {len(seen.nodes)}",
        f"all clients are connected to {some(sorted(str(h) for h in hosts))}; Metadata names {some(names)}",
        "what clients ask of the other brokers is missing: their share of topics, groups and transactions",
        "capture on all brokers at once, or on the clients' hosts, and read all captures together",
        brokers=len(seen.nodes),
    )  # fmt: skip


def proxies(seen: Observed) -> Iterator[Finding]:
    """Many clients behind one address."""
    context = seen.context
    if context.ledger["payload bytes"].get("proxy_headers", 0):
        return  # the headers name the clients
    counts = seen.exchanges.clients
    if len(counts) != 1:
        return
    ((ip, names),) = counts.items()
    address = context.address(ip)
    advertised = {place for place in seen.nodes.values() if _is_address(place)}
    rows = context.connections[context.connections["protocol"] == P_KAFKA]
    places = {endpoint(context.address(i), p) for i, p in zip(
        rows["broker_ip"].tolist(), rows["broker_port"].tolist(), strict=True)}  # fmt: skip
    hosts = {place.rpartition(":")[0] for place in places} | places
    if names < MANY_CLIENTS or not advertised or hosts & (advertised | {a.rpartition(":")[0] for a in advertised}):
        return
    yield finding(
        "proxies", WARNING, "a load balancer or proxy may hide the clients",
        f"{names:,} client ids come from the one address {address}, to {some(sorted(places))}, which no broker of "
        f"{some(sorted(advertised))} advertises",
        "clients cannot be told apart by address",
        "let it send PROXY headers, or capture in front of it", clients=names,
    )  # fmt: skip


def twins(seen: Observed) -> Iterator[Finding]:
    """Connections under two addresses."""
    rows = seen.context.connections
    for found in findings_of(seen.context, rows[may_be_twins(rows)]):
        by = "NAT" if found.numbers["behind"] == "NAT" else "the proxy"
        yield finding(
            "twins", NOTE, "connections are seen twice, under two addresses", found.text,
            "a report of files reads them twice, to count once; a pipe, live capture and lakes count twice",
            f"read one side: {command(seen.context, None, found.options)}; or capture on one side of {by}",
            **found.numbers,
        )  # fmt: skip


def _is_address(place: str) -> bool:
    """Whether the host of `host`, `host:port` or `[host]:port` is an IP address."""
    host = place.rpartition(":")[0] or place
    return ":" in host or host.replace(".", "").isdecimal()
