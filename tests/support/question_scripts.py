"""What the scripts of samples/questions have in common."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import zstandard

from .broker import missing_compiler
from .cluster import Broker
from .namespaces import Host, cannot_build


def client(host: Host, kind: str, bootstrap: str, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run a librdkafka client (tests.support.run_client) at a host; what it saw."""
    given = {"bootstrap.servers": bootstrap, "client.id": name} | dict(settings)
    seen: dict[str, Any] = json.loads(host.python("tests.support.run_client", kind, json.dumps(given)))
    print(f"{name}: {seen}")
    return seen


def requests_of(broker: Broker) -> Iterator[dict[str, Any]]:
    """The lines of a broker's request log: `api`, `version`, `client_id`, `correlation_id`, `client` (address:port),
    `software`, `request` and the times in ms by the names that Kafka gives them (`remoteTimeMs` and others)."""
    for line in broker.request_log():
        row = json.loads(line)
        header = row["requestHeader"]
        # 10.77.0.1:9092-10.77.0.11:40000-0-1 (newer brokers add more numbers)
        client_end = row["connection"].split("-")[1]
        software = row.get("clientInformation", {})
        yield {
            "api": header["requestApiKeyName"], "version": header["requestApiVersion"],
            "client_id": header.get("clientId"), "correlation_id": header["correlationId"], "client": client_end,
            "software": f"{software.get('softwareName')} {software.get('softwareVersion')}",
            "request": row.get("request", {}),
        } | {name: value for name, value in row.items() if name.endswith("TimeMs")}  # fmt: skip


def publish(folder: Path, name: str, raw: Path) -> Path:
    """Write a recording as NAME.pcap.zst into the folder of the samples, compressed as much as zstd can."""
    data = raw.read_bytes()
    target = folder / f"{name}.pcap.zst"
    target.write_bytes(zstandard.ZstdCompressor(level=19, write_checksum=True).compress(data))
    print(f"{target}: {target.stat().st_size} bytes, {len(data)} unpacked")
    return target


def main(record: Callable[[Path], None], arguments: Sequence[str], folder: Path) -> int:
    """The command line of a script: [FOLDER], by default the script's own."""
    name = Path(sys.argv[0]).stem
    if len(arguments) > 1:
        print(f"usage: python samples/questions/{name}.py [FOLDER]", file=sys.stderr)
        return 2
    if why := cannot_build() or missing_compiler():
        print(f"{name}: {why}", file=sys.stderr)
        return 2
    record(Path(arguments[0]) if arguments else folder)
    return 0
