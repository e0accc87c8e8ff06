"""Checks of captures as files: damage, drops, snap length, link types, copies, interfaces, clock and order."""

from __future__ import annotations

from collections.abc import Iterator

from kafkatap.dissector.dtypes import ORPHAN_RESPONSE
from kafkatap.reassembly.link_types import READ, link_name
from kafkatap.reports import units
from kafkatap.reports.finding_words import counted
from kafkatap.reports.findings import ERROR, NOTE, WARNING, Finding
from kafkatap.reports.twins import find_twins, may_be_twins

from ..captures.capture_reader import FileReport
from .clock_steps import ClockStep
from .finding import finding, share, some
from .observed import Observed
from .packet_checks import MS, PATIENCE_NS, CaptureChecks

#: Shares of all packets from which on losses and copies are a warning, or an error.
DROPPED_BADLY, COPIED = 0.01, 0.01
#: Clock steps that are listed, and the least lateness of packets that is named, ns.
LISTED, LATE_NS = 5, PATIENCE_NS
#: A difference between two clocks that is named, and one from which on closed connections count twice, ns.
APART_NS, TWICE_NS = 20 * MS, 5_000 * MS
COOKED = ("Linux cooked", "Linux cooked v2")


def damage(seen: Observed) -> Iterator[Finding]:
    """Files that cannot be read whole."""
    for file in seen.run.files:
        if not file.damage:
            continue
        if file.fatal:
            yield finding(
                "files", ERROR, f"{file.path} cannot be read", f"{file.damage}",
                "none of its packets is in any report",
                "check that it is a pcap or pcapng, and that it was copied whole",
                path=str(file.path), packets=0,
            )  # fmt: skip
            continue
        is_cut = "cut short" in file.damage
        yield finding(
            "files", WARNING if is_cut else ERROR,
            f"{file.path} is {'cut short' if is_cut else 'damaged'}",
            f"{file.damage}; {counted(file.packets, 'packet')} before that",
            "reports cover the packets before that place only",
            "let the capture program end by itself (Ctrl-C or SIGTERM), and copy the file when it has ended"
            if is_cut else "copy the file again; pcapfix can recover some of the rest",
            path=str(file.path), packets=file.packets,
        )  # fmt: skip


def extracts(seen: Observed) -> Iterator[Finding]:
    """Files that `kafkatap extract` wrote."""
    for path in seen.extracts:
        command = seen.heads[path].comment
        yield finding(
            "extracts", NOTE,
            f"{path} is an extract: packets between the chosen exchanges were left out on purpose",
            f"written by: {command}" if command else f"written by {seen.heads[path].program}",
            "numbers of requests, rates, gaps and statistics of whole connections are those of the extract; rows of "
            "the chosen exchanges are right",
            "none is needed; for statistics read the original, or extract with --connections",
            path=str(path),
        )  # fmt: skip


def drops(seen: Observed) -> Iterator[Finding]:
    """Packets that the capture program says it dropped."""
    for file in seen.run.files:
        if not file.drops:
            continue
        rate = file.drops / max(file.drops + file.packets, 1)
        yield finding(
            "drops", ERROR if rate >= DROPPED_BADLY else WARNING,
            f"{counted(file.drops, 'packet')} dropped while {file.path} was captured",
            f"{share(file.drops, file.drops + file.packets)} of {file.drops + file.packets:,} packets, as its "
            "interface statistics say",
            "messages in them are missing; see gaps for those of known connections",
            "use a larger buffer (-B), a filter on the brokers' ports, and a fast disk",
            path=str(file.path), dropped_packets=file.drops, dropped_share=rate,
        )  # fmt: skip


def snap_length(seen: Observed) -> Iterator[Finding]:
    """Packets that were cut."""
    short = seen.context.ledger["packets"].get("headers_not_captured", 0)
    for checks in seen.packets.captures.values():
        if not checks.cut:
            continue
        streams = seen.streams
        is_hit = streams["cut_bytes"] > 0
        kafka = int((is_hit & streams["is_kafka"]).sum())
        payload = int(streams["cut_bytes"].sum())
        offload = f"; the longest has {checks.longest:,} bytes (segmentation offload)" if checks.longest > 9_100 else ""
        yield finding(
            "snap length", ERROR if payload or short else NOTE,
            f"packets of {checks.report.path} are cut to {checks.longest_kept:,} bytes",
            f"{checks.cut:,} of {counted(checks.packets, 'packet')} cut, {units.size(checks.cut_bytes)} missing"
            f"{offload}; {units.size(payload)} of payload in {counted(int(is_hit.sum()), 'connection')} "
            f"({kafka:,} Kafka); {counted(seen.exchanges.incomplete, 'exchange')} incomplete",
            _effect_of_cuts(seen) if payload else "headers are missing" if short else "none: no TCP payload is missing",
            "capture whole packets: -s 0",
            path=str(checks.report.path), packets=checks.packets, cut_packets=checks.cut, cut_bytes=checks.cut_bytes,
            kept_bytes=checks.longest_kept, cut_payload_bytes=payload, connections=int(is_hit.sum()),
            kafka_connections=kafka, incomplete=seen.exchanges.incomplete,
        )  # fmt: skip
    if short:
        yield finding(
            "snap length", ERROR, f"headers of {counted(short, 'packet')} are cut off",
            f"{share(short, seen.context.packets)} of all packets end before the payload of TCP begins",
            "these packets are ignored: their bytes count as gaps", "capture whole packets: -s 0",
            packets=short,
        )  # fmt: skip


def _effect_of_cuts(seen: Observed) -> str:
    """What reports of cut messages lack, and what they get wrong."""
    unknown = seen.counts.total("unknown_waits")
    effect = "client ids, error codes, topics and records in the missing bytes are unknown; "
    payload = seen.context.ledger["payload bytes"]
    orphans, outside = int(seen.exchanges.outcomes[ORPHAN_RESPONSE]), payload.get("skipped", 0)
    has_tls = bool(payload.get("encrypted", 0) or payload.get("tls_overhead", 0))
    if has_tls:
        effect += "TLS records that are cut cannot be decrypted, so requests and responses in them are missing; "
    if orphans or outside:
        effect += (
            f"messages that begin behind the cut of a packet are not counted, as with pipelined requests: "
            f"{counted(orphans, 'response')} without its request, {units.size(outside)} in no message; sizes and total "
            "times of the others are right"
        )
    elif has_tls:
        effect += "sizes and total times of the others are right"
    else:
        effect += (
            "numbers of requests, sizes and total times are right, as every message begins in a packet's kept bytes"
        )
    if unknown:
        effect += (
            f"; throttle time, errors or long poll of {counted(unknown, 'answered exchange')} are unknown: "
            "broker times contain throttle waits and long polls, too few exchanges count as failed, and "
            "verdicts on such clients are unknown"
        )
    return effect


def link_types(seen: Observed) -> Iterator[Finding]:
    """Link layers that are not read, and headers that make no sense."""
    packets = seen.context.ledger["packets"]
    unknown = {link_name(link): n for link, n in seen.packets.links.items() if link not in READ}
    if unknown:
        count = sum(unknown.values())
        yield finding(
            "link types", ERROR, f"kafkatap does not read the link type {some(list(unknown))}",
            f"{counted(count, 'packet')}, {share(count, seen.context.packets)} of all",
            "these packets are in no report", "capture on another interface, such as that of the broker's host",
            packets=count,
        )  # fmt: skip
    bad = packets.get("bad_header", 0)
    if bad:
        yield finding(
            "link types", WARNING if bad >= 0.01 * seen.context.packets else NOTE,
            f"{counted(bad, 'packet')} {'has' if bad == 1 else 'have'} invalid headers",
            f"{share(bad, seen.context.packets)} of all packets", "these packets are ignored",
            "if there are many, the link type of the capture may be wrong (editcap -T)", packets=bad,
        )  # fmt: skip
    lost = packets.get("fragment", 0) + packets.get("evicted_fragment", 0)
    if lost:
        yield finding(
            "link types", WARNING, f"{counted(lost, 'IP fragment')} without the rest of the packet",
            f"{share(lost, seen.context.packets)} of all packets", "their bytes count as gaps",
            "a filter on ports drops all fragments but the first: filter by host, or add 'or (ip[6:2] & 0x1fff != 0)'",
            fragments=lost,
        )  # fmt: skip


def copies(seen: Observed) -> Iterator[Finding]:
    """Packets that were captured twice."""
    count = seen.context.ledger["packets"].get("duplicate", 0)
    if not count:
        return
    cooked = any(link in COOKED for f in seen.context.files for link in f.link_types)
    interfaces = max((len(head.interfaces) for head in seen.heads.values()), default=0)
    points = len(set(seen.packets.points.values()))
    if points > 1:
        why, remedy = f"by {points} captures that overlap in time", "none is needed, if you want both ends"
    elif cooked:
        why = f"by the interface 'any', which sees a packet on each of {_interfaces(seen)}"
        remedy = "capture on one interface instead of 'any': the one that has the broker's address"
    elif interfaces > 1:
        why, remedy = f"by a capture on {interfaces} interfaces", "capture on one interface"
    else:
        why = "by a mirror port (SPAN) that sees both sides, or by an interface and its bridge"
        remedy = "mirror one direction of each port, or one port only"
    are_many = count >= COPIED * seen.context.packets
    yield finding(
        "copies", WARNING if are_many and points < 2 else NOTE,
        f"{counted(count, 'packet')} captured twice", f"{share(count, seen.context.packets)} of all packets, {why}",
        "they count once, and not as retransmissions; the capture is larger and drops packets earlier", remedy,
        packets=count, capture_points=points,
    )  # fmt: skip


def _interfaces(seen: Observed) -> str:
    many = len(seen.packets.cooked_interfaces)
    return f"{many} interfaces" if many > 1 else "its ways through the host"


def interfaces(seen: Observed) -> Iterator[Finding]:
    """Captures of several interfaces, and those of `any`."""
    for path, head in seen.heads.items():
        if len(head.interfaces) > 1:
            names = [i.name or f"number {n}" for n, i in enumerate(head.interfaces)]
            yield finding(
                "interfaces", NOTE, f"{path} has {len(names)} interfaces",
                f"{some(names)}", "none, unless a packet crosses several of them: see copies",
                "capture only the interface with the brokers' traffic", path=str(path), interfaces=len(names),
            )  # fmt: skip
    rows = seen.context.connections
    has_twins = len(find_twins(rows[may_be_twins(rows)])) > 0
    effect = (
        "connections on both sides of NAT are there twice: see twins" if has_twins else "none, but copies are possible"
    )
    cooked = {f.path for f in seen.context.files if any(link in COOKED for link in f.link_types)}
    for path in sorted(cooked):
        numbers = seen.packets.cooked_interfaces
        which = f" of interfaces {some([str(n) for n in sorted(numbers)])}" if numbers else ""
        yield finding(
            "interfaces", NOTE, f"{path} was captured on 'any'",
            f"Linux cooked packets{which}",
            f"{effect}, and the capture is larger",
            "capture on one interface instead of 'any'", path=str(path), interfaces=len(numbers),
        )  # fmt: skip


def clock(seen: Observed) -> Iterator[Finding]:
    """Steps of the capturing clock."""
    paths = seen.packets.paths
    by_point: dict[int, list[ClockStep]] = {}
    for step in seen.steps:
        by_point.setdefault(step.point, []).append(step)
    for point, steps in by_point.items():
        spanning = sum(seen.exchanges.spanning(step) for step in steps)
        shown = [
            f"{'forward' if s.step_ns > 0 else 'back'} by {units.duration(abs(s.step_ns))} {_place(seen, s)}"
            + (f" ({counted(s.directions, 'sender')} did not jump)" if s.directions else "")
            for s in steps
        ]
        where = _files_of(seen, steps) or [paths[point]]
        yield finding(
            "clock", WARNING, f"the clock of the capturing host stepped {counted(len(steps), 'time')}: {some(where)}",
            some(shown, most=LISTED),
            f"times of {counted(spanning, 'exchange')} that were under way are wrong, and the timeline jumps",
            "let the clock be slewed, not stepped (chrony without makestep), or capture on a host with a steady clock",
            steps=len(steps), largest_step_ns=max((step.step_ns for step in steps), key=abs), exchanges=spanning,
        )  # fmt: skip


def _files_of(seen: Observed, steps: list[ClockStep]) -> list[str]:
    """The files in which steps are, in order."""
    return list(dict.fromkeys(file.path for step in steps if (file := _file_of(seen, step.before)) is not None))


def _file_of(seen: Observed, number: int) -> FileReport | None:
    """The file that has a packet."""
    return next((f for f in seen.run.files if 0 <= number - f.first_packet < f.packets), None)


def _place(seen: Observed, step: ClockStep) -> str:
    """Where a step is: numbers of packets within their files."""
    first, second = _file_of(seen, step.after), _file_of(seen, step.before)
    if first is None or second is None:
        return f"between packets {step.after:,} and {step.before:,} of all captures"
    after, before = step.after - first.first_packet + 1, step.before - second.first_packet + 1
    of = f" of {second.path}" if len(seen.run.files) > 1 else ""
    if first is not second:
        return f"between packet {after:,} of {first.path} and packet {before:,}{of}"
    return f"at packet {before:,}{of}" if before - after == 1 else f"between packets {after:,} and {before:,}{of}"


def clocks(seen: Observed) -> Iterator[Finding]:
    """Captures of the same connections whose clocks differ."""
    paths = seen.packets.paths
    for first, second, apart, directions in seen.differences:
        if abs(apart) < APART_NS:
            continue
        yield finding(
            "clock", WARNING,
            f"the clocks of {paths[first]} and {paths[second]} differ by {units.duration(abs(apart))}",
            f"{counted(directions, 'direction')} of connections are in both: their times in {paths[second]} are "
            f"{'later' if apart > 0 else 'earlier'}",
            "durations mix both clocks" + ("; connections may count twice" if abs(apart) > TWICE_NS else ""),
            "synchronise the clocks (chrony, PTP), or shift one capture: editcap -t SECONDS IN OUT",
            difference_ns=apart, directions=directions,
        )  # fmt: skip


def resolution(seen: Observed) -> Iterator[Finding]:
    """Coarse time stamps."""
    for checks in seen.packets.captures.values():
        coarsest = checks.coarsest
        if coarsest is None:
            continue
        yield finding(
            "clock", ERROR if coarsest >= 100 * MS else WARNING,
            f"times of {checks.report.path} are whole multiples of {units.step(coarsest)}",
            f"so are those of all {counted(checks.packets, 'packet')}",
            f"durations below {units.step(coarsest)} show as 0, and percentiles are that coarse",
            "use tcpdump or dumpcap (µs or ns), and do not convert the capture to a text format",
            path=str(checks.report.path), resolution_ns=coarsest, packets=checks.packets,
        )  # fmt: skip


def order(seen: Observed) -> Iterator[Finding]:
    """Packets that come much later in the file than in time."""
    stepped = {step.point for step in seen.steps}
    are_interfaces = max((len(h.interfaces) for h in seen.heads.values()), default=0) > 1
    for checks in seen.packets.captures.values():
        point = seen.packets.points.get(checks.report.path, 0)
        if checks.very_late and point not in stepped and checks.backs and not are_interfaces:  # which come in bursts
            yield _parts(checks)
        elif checks.very_late and point not in stepped:
            yield _late(checks, seen.late_segments.get(point, 0), are_interfaces)


def _parts(checks: CaptureChecks) -> Finding:
    """A file whose parts are in the wrong order, as of a ring that wrapped: within each, packets are in order."""
    return finding(
        "order", ERROR, f"parts of {checks.report.path} are in the wrong order",
        f"{counted(checks.backs, 'time')} the packets go on up to {units.duration(checks.latest_ns)} earlier, while "
        f"the senders' clocks agree with the times; {counted(checks.very_late, 'packet')} come after later ones",
        "connections that span the parts are torn: requests are missing, and bytes count as retransmitted or as gaps",
        "read the files of the ring themselves, in any order: kafkatap sorts them by time (so does mergecap, without "
        "-a); or sort the file: reordercap IN OUT",
        path=str(checks.report.path), times=checks.backs, latest_ns=checks.latest_ns, late_packets=checks.very_late,
    )  # fmt: skip


def _late(checks: CaptureChecks, within: int, are_interfaces: bool) -> Finding:
    """`within`: segments that come late after others of the same direction of a connection."""
    why = "programs write each interface in bursts" if are_interfaces else "a queue of the capture was read late"
    return finding(
        "order", WARNING if within else NOTE, f"packets of {checks.report.path} are not in time order",
        f"{counted(checks.very_late, 'packet')} come more than {units.duration(LATE_NS)} late, at most "
        f"{units.duration(checks.latest_ns)}: {why}; {counted(within, 'packet')} of these late within a connection",
        "bytes that come so late count as gaps" if within else "none: each connection is in order",
        "sort the capture before you read it: reordercap IN OUT",
        path=str(checks.report.path), latest_ns=checks.latest_ns, late_packets=checks.very_late,
        late_packets_of_connections=within,
    )  # fmt: skip
