"""Hosts for `kafkatap collect` without a cluster: a `kubectl` that runs commands in folders of this machine.

Of kubectl:NAMESPACE/POD, the folder is ROOT/NAMESPACE/POD; a file `date` in it is the pod's clock. Its file
`containers` has the names of several containers, each with a folder, unless it does not run. Errors and what goes to
standard error are as of kubectl.
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
pod="{root}/$4/$5" name="$5" chosen=
shift 5
if [ "$1" = -c ]; then chosen="$2"; shift 2; fi
[ "$1" = -- ] || exit 9
shift
[ -d "$pod" ] || {{ echo 'Error from server (NotFound): pods not found' >&2; exit 1; }}
folder="$pod"
if [ -f "$pod/containers" ]; then
    names=$(cat "$pod/containers")
    if [ -z "$chosen" ]; then
        chosen="${{names%%,*}}"
        echo "Defaulted container \\"$chosen\\" out of: $names" >&2
    fi
    case ", $names," in *", $chosen,"*) ;; *)
        echo "Error from server (BadRequest): container $chosen is not valid for pod $name" >&2; exit 1 ;;
    esac
    folder="$pod/$chosen"
    if [ ! -d "$folder" ]; then
        echo "error: unable to upgrade connection: container not found (\\"$chosen\\")" >&2; exit 1
    fi
fi
cd "$folder" || exit 9
PATH="$folder:$PATH" "$@"
code=$?
[ $code = 0 ] || echo "command terminated with exit code $code" >&2
exit $code
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

    def add_container(self, pod: str, *names: str, runs: str) -> Path:
        """A pod with several containers, of which one runs; return its folder of packets."""
        folder = self.root / "kafka" / pod
        (folder / runs / "kept").mkdir(parents=True)
        (folder / "containers").write_text(", ".join(names))
        return folder / runs / "kept"

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
