"""Files of --hosts, damaged. A file is read or refused with its name, and what is read has one name at each time."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import numpy as np

from kafkatap.reports.hosts.host_entry import ALWAYS_FROM, ALWAYS_TO
from kafkatap.reports.hosts.host_files import HostFile, entries_of, zones_of
from kafkatap.reports.hosts.host_table import HostTable, succeeding
from tests.wire.mutations import changed

from .target import Target

_SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "questions"
_AWS = b"""{"NetworkInterfaces": [{"NetworkInterfaceId": "eni-1", "AvailabilityZone": "a", "PrivateIpAddresses": [
{"PrivateIpAddress": "10.0.0.1", "Association": {"PublicIp": "52.0.0.1"}}], "Ipv6Addresses": [{"Ipv6Address": "::9"}],
"TagSet": [{"Key": "Name", "Value": "x"}], "Attachment": {"InstanceId": "i-1"}}]}"""
_HOSTS = b"10.0.0.1 a # b\n::ffff:10.0.0.2 c d\nfe80::1%eth0 e\n10.0.0.0/8 f\n"


@cache
def _files() -> list[bytes]:
    return [(_SAMPLES / name).read_bytes() for name in ("hosts.hosts.csv", "hosts.pods.json")] + [_AWS, _HOSTS]


def a_file(chance: random.Random) -> bytes:
    """A file of one of the formats, of which lines are repeated, put elsewhere, or damaged."""
    data = chance.choice(_files())
    lines = data.splitlines(keepends=True)
    if chance.random() < 0.3:
        chance.shuffle(lines)
    if chance.random() < 0.3:
        lines += chance.choices(lines, k=chance.choice((1, 20, 500)))
    data = b"".join(lines)
    if chance.random() < 0.05:
        data = chance.choice((b"[", b'{"kind":', b'"')) * chance.choice((2, 100, 50_000)) + data
    return changed(data, chance) if chance.random() < 0.8 else data


def check_file(data: bytes) -> None:
    """What is read names its addresses the same one by one and as arrays, also after it was read again."""
    file = HostFile("a file", data)
    for read in (entries_of, lambda files: zones_of(files[0])):
        said = "a file"
        try:
            read([file])
        except ValueError as error:
            said = str(error)
        assert "a file" in said
    try:
        entries = entries_of([file], utc=True)
    except ValueError:
        return
    table = HostTable(entries)
    addresses = sorted({entry.network.partition("/")[0] for entry in entries})[:50]
    times = sorted({at for e in entries[:50] for at in (e.start, e.end) if ALWAYS_FROM < at < ALWAYS_TO} | {0})[:50]
    ip, at = (grid.ravel() for grid in np.meshgrid(np.arange(len(addresses)), np.array(times, np.int64)))
    for number, address, time in zip(table.numbers(ip, at, addresses).tolist(), ip.tolist(), at.tolist(), strict=True):
        name = table.name_at(addresses[address], time)
        assert name == (None if number < 0 else table.names[number])
        assert name is None or name.text.encode()
    now = times[len(times) // 2]
    once = succeeding(entries, entries, now)
    assert len(succeeding(once, entries, now + 1)) == len(once)


HOSTS_TARGETS = (Target("hosts", a_file, check_file, seconds=1.0),)
