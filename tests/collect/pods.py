"""Hosts for `kafkatap collect` without a cluster: a `kubectl` that runs commands in folders of this machine.

Of kubectl:NAMESPACE/POD, the folder is ROOT/NAMESPACE/POD; a file `date` in it is the pod's clock.
"""

from __future__ import annotations

import os
from pathlib import Path

from kafkatap.reassembly import pcapng_blocks as blocks
from tests.support.captures import Packet
from tests.support.tcp import Segment, encode

KUBECTL = """#!/bin/sh
echo "$@" >> "{root}/calls"
[ "$1 $2 $3" = "exec -i -n" ] || exit 9
folder="{root}/$4/$5"
shift 5
[ "$1" = -c ] && shift 2
[ "$1" = -- ] || exit 9
shift
[ -d "$folder" ] || {{ echo 'Error from server (NotFound): pods not found' >&2; exit 1; }}
cd "$folder" || exit 9
PATH="$folder:$PATH" exec "$@"
"""


class Pods:
    """A folder with pods. `environment` has the variables by which kubectl is found."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        _program(self.bin / "kubectl", KUBECTL.format(root=root))
        self.environment = {"PATH": f"{self.bin}:{os.environ['PATH']}"}

    def add(self, name: str, ahead: float = 0) -> Path:
        """A pod in the namespace `kafka`, whose clock is so many seconds ahead; return its folder of packets."""
        folder = self.root / "kafka" / name
        (folder / "kept").mkdir(parents=True)
        if ahead:
            program = f'#!/bin/sh\nexec /bin/date -d "now {ahead:+f} seconds" "$@"\n'
            _program(folder / "date", program)
        return folder / "kept"

    @property
    def calls(self) -> list[str]:
        """The words of each call of kubectl."""
        return (self.root / "calls").read_text().splitlines()


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def write_kept(folder: Path, name: str, segments: list[Segment], comment: str = "") -> None:
    """A file as `live --keep` makes them."""
    parts = [blocks.section_header("kafkatap", comment), blocks.captured_interface(1, "eth0")]
    parts += [_block(packet) for packet in encode(segments)]
    (folder / name).write_bytes(b"".join(parts))


def _block(packet: Packet) -> bytes:
    high, low = packet.time_ns >> 32, packet.time_ns & 0xFFFFFFFF
    return blocks.packet(0, high, low, packet.data, len(packet.data), [])
