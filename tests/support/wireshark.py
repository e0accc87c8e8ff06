"""Kafka messages as tshark reads them, and the bytes of the same messages as kafkatap frames them.

tshark's PDML has one `proto` for each message, with a `field` for each value in the order of the wire. The packet that
completes a message, its direction and its correlation_id identify it on both sides.
"""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kafkatap.dissector.inspection import Frames
from kafkatap.engine.engine import Engine
from kafkatap.run import Run

TSHARK = shutil.which("tshark")

#: (packet, direction, correlation_id).
Place = tuple[int, int, int]


@dataclass(slots=True)
class Shown:
    """One message as tshark shows it: values by the field's name without "kafka.", in the order of the wire.
    `remarks`: tshark's complaints."""

    api_key: int = -1
    api_version: int = -1
    values: dict[str, list[str]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Framed:
    """One message as kafkatap frames it. `body`: from the header's tag section on. `whole`: all of it was captured."""

    api_key: int
    api_version: int
    body: bytes
    whole: bool


def read_shown(capture: Path, ports: Iterable[int]) -> Iterator[tuple[Place, Shown]]:
    """Every Kafka message that tshark finds in a capture, with brokers on these ports. Responses without a request are
    skipped: tshark does not know their API."""
    assert TSHARK is not None
    decode_as = [word for port in sorted(ports) for word in ("-d", f"tcp.port=={port},kafka")]
    command = [TSHARK, "-n", "-r", str(capture), *decode_as, "-Y", "kafka", "-T", "pdml", "-J", "kafka"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        yield from _messages(line.decode("utf-8", "replace") for line in process.stdout)
        assert process.wait() == 0


def read_pairs(capture: Path, ports: Iterable[int]) -> Counter[tuple[int, int]]:
    """How often tshark pairs a response with a request: by (request's packet, response's packet)."""
    assert TSHARK is not None
    decode_as = [word for port in sorted(ports) for word in ("-d", f"tcp.port=={port},kafka")]
    command = [TSHARK, "-n", "-r", str(capture), *decode_as, "-Y", "kafka.request_frame", "-T", "fields"]
    command += ["-e", "frame.number", "-e", "kafka.request_frame"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    pairs: Counter[tuple[int, int]] = Counter()
    for line in done.stdout.splitlines():
        number, requests = line.split("\t")
        pairs.update((int(request), int(number)) for request in requests.split(",") if request)
    return pairs


def read_decrypted(capture: Path, ports: Iterable[int], keys: Path) -> Counter[tuple[int, int, int, int]]:
    """The Kafka messages that tshark finds in TLS connections to these ports, with the secrets of a key log: (packet,
    direction, correlation_id, size)."""
    assert TSHARK is not None
    several = sorted(ports)
    command = [TSHARK, "-n", "-r", str(capture), "-o", f"tls.keylog_file:{keys}", "-Y", "kafka", "-T", "fields"]
    for port in several:
        command += ["-d", f"tcp.port=={port},tls", "-d", f"tls.port=={port},kafka"]
    for name in ("frame.number", "tcp.srcport", "kafka.correlation_id", "kafka.len"):
        command += ["-e", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    found: Counter[tuple[int, int, int, int]] = Counter()
    for line in done.stdout.splitlines():
        number, source, correlations, sizes = line.split("\t")
        for correlation, size in zip(correlations.split(","), sizes.split(","), strict=True):
            found[int(number), int(int(source) in several), int(correlation), int(size)] += 1
    return found


#: Each field has its own line. The output is not always well-formed XML: texts of the wire break it.
_FIELD = re.compile(r' *<field name="([^"]+)".*? show="([^"]*)"')


def _messages(lines: Iterable[str]) -> Iterator[tuple[Place, Shown]]:
    packet = 0
    shown: Shown | None = None
    for line in lines:
        if line.startswith('  <proto name="_ws.malformed"') and shown is not None:
            shown.remarks.append("Malformed Packet")
        if line.startswith(('  <proto name="kafka"', "</packet>")):
            place = None if shown is None else _place(packet, shown)
            if place is not None and shown is not None:
                yield place, shown
            shown = None if line.startswith("</packet>") else Shown()
        found = _FIELD.match(line)
        if found is None:
            continue
        name, value = found[1], html.unescape(found[2])
        if name == "num":
            packet = int(value)
        elif shown is not None and name == "_ws.expert.message":
            shown.remarks.append(value)
        elif shown is not None and name.startswith("kafka."):
            shown.values.setdefault(name[6:], []).append(value)


def _place(packet: int, shown: Shown) -> Place | None:
    values = shown.values
    direction = 0 if "request.version" in values else 1
    version = values.get("response.version" if direction else "request.version")
    if version is None or "api_key" not in values or "correlation_id" not in values:
        return None
    shown.api_key, shown.api_version = int(values["api_key"][0]), int(version[0])
    return packet, direction, int(values["correlation_id"][0])


class _Keeper:
    """An inspector that keeps every message's body."""

    def __init__(self) -> None:
        self.found: dict[Place, Framed] = {}

    def look(self, frames: Frames) -> None:
        for job in frames.jobs:
            row = frames.rows[job["frame"] >> 1]
            direction = int(job["frame"]) & 1
            packet = int(row["response_packet_last"] if direction else row["request_packet_last"])
            body = frames.buffers[job["source"]][job["at"] : job["end"]].tobytes()
            self.found[packet, direction, int(row["correlation_id"])] = Framed(
                int(row["api_key"]), int(row["api_version"]), body, int(job["end"]) == int(job["limit"])
            )


def read_framed(capture: Path) -> dict[Place, Framed]:
    """Every message that kafkatap frames in a capture."""
    keeper = _Keeper()
    run = Run([str(capture)], Engine(inspectors=[keeper]), threaded=False)
    for _ in run.batches():
        pass
    return keeper.found
