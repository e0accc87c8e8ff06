"""Recordings that are hard to read in parts: all captures of a folder of samples joined into one, and single ones.

A joined recording has more kinds of findings than any test could name, and connections, groups and brokers that come
again with the same addresses. Each part begins a second after the end of the one before, and its packets stay as they
are.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

from tests.reports.test_events_section import polls
from tests.support.captures import ETHERNET, Interface, Packet, pcap_bytes, pcapng_bytes, read_capture
from tests.support.copies import by_time, outer_leg
from tests.support.tcp import encode, merge
from tests.wire.kafkatalk import KafkaTalk

SINGLE = (
    "questions/rebalances", "questions/timeouts", "advice/slow-follower", "events/leak", "events/freezes/freezes",
    "events/freezes/slow-broker", "account/lossy-client",
    "live-4.3", "live-4.4", "apache-0.8.2", "apache-0.10.2", "apache-2.8", "apache-4.3",
)  # fmt: skip
#: Captures of troubles that people reported, for signatures without a sample of their own.
ADVICE = (
    "aborts",
    "idle-reset",
    "minbytes0-small",
    "offsets-set",
    "paused-partition",
    "refetch",
    "unstable-offsets",
    "static-twins",
)
#: Folders of captures that are recordings by themselves, or large ones.
APART = ("disk", "freezes", "healthy")
SECOND = 1_000_000_000
SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def joined(parts: Iterable[Iterable[Packet]]) -> list[Packet]:
    """Packets of captures as those of one, in order."""
    found: list[Packet] = []
    end = 0
    for packets in map(list, parts):
        if packets:
            later = end + SECOND - min(packet.time_ns for packet in packets) if found else 0
            found += (replace(packet, time_ns=packet.time_ns + later) for packet in packets)
            end = max(packet.time_ns for packet in packets) + later
    return found


@cache
def _packets(path: Path) -> tuple[Packet, ...]:
    capture = read_capture(path)
    return tuple(capture.packets) if capture.link_types == [ETHERNET] else ()


def _folder(name: str) -> list[Packet]:
    """All of a folder but for the few captures of other link layers, and of folders of which some are SINGLE."""
    paths = sorted((SAMPLES / name).glob("**/*.pcap.zst"))
    return joined(_packets(path) for path in paths if path.parent.name not in APART)


def _not_reached() -> list[Packet]:
    """Two clients of two brokers; one broker is not reached for a while."""
    talks = [polls(client, broker, broker == 1, 10_000_000) for client in (1, 2) for broker in (1, 2)]
    return encode(merge(*talks))


def _twins() -> list[Packet]:
    """Each packet twice, under other addresses: before and behind NAT."""
    packets, broker = list(_packets(SAMPLES / "apache-4.3.pcap.zst")), ("10.77.0.1", 9092)
    return by_time([*packets, *outer_leg(packets, broker, ("10.96.0.10", 9092), 20_000)])


#: By name, what makes the packets.
RECORDINGS: dict[str, Callable[[], list[Packet]]] = {
    "advice": lambda: joined([_folder("advice"), *(_packets(SAMPLES / f"reports/{name}.pcap.zst") for name in ADVICE)]),
    "events": lambda: joined([_not_reached(), _folder("events")]),
    "questions": lambda: _folder("questions"),
    "reports": lambda: _folder("reports"),
    "twins": _twins,
    **{name: lambda name=name: list(_packets(SAMPLES / f"{name}.pcap.zst")) for name in SINGLE},  # type: ignore[misc]
}
#: A recording of two files. Between them are packets that were not captured, and others were dropped.
LOST = "lost"


def recording(name: str, folder: Path) -> list[Path]:
    """The files of a recording in a folder that processes share, made by the first of them."""
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if name == LOST:
            return _lost(folder)
        path = folder / f"{name.replace('/', '-')}.pcap"
        if not path.exists():
            path.write_bytes(pcap_bytes(RECORDINGS[name](), nanoseconds=True))
        return [path]


def _lost(folder: Path) -> list[Path]:
    packets = _packets(SAMPLES / "apache-4.3.pcap.zst")
    count, paths = len(packets), [folder / f"{LOST}-{n}.pcapng" for n in (1, 2)]
    for path, part in zip(paths, (packets[: count // 3], packets[2 * count // 3 :]), strict=True):
        if not path.exists():
            path.write_bytes(pcapng_bytes(part, [Interface(drops=7)]))
    return paths


def with_bulk(packets: list[Packet], least: int) -> list[Packet]:
    """The packets, and so many bytes of a connection that is not Kafka's, all of them at the end."""
    talk = KafkaTalk(client=("10.200.0.1", 55_555), broker=("10.200.0.2", 443), mss=60_000, acks=False)
    talk.tcp.open()
    for _ in range(-(-least // 60_000)):
        talk.tcp.send(0, b"\x17\3\3\xea\x5b" + bytes(59_995))
    end = max(packet.time_ns for packet in packets)
    return [*packets, *(replace(packet, time_ns=end) for packet in encode(talk.segments))]
