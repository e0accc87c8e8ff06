"""Measure the memory of commands on the messages that cost the most for their bytes.

    python benchmarks/worst_messages.py [--size 4m] [--every 20] [--command 'show --tree']... [--message TEXT]

Each array of each message is filled with its smallest elements, in a capture of a few kB
(`tests/wire/worst_messages.py`). Each command reads each capture in a process of its own. The table has the largest
peak of each command, the message that has it, the time of the slowest, and how many failed. `--message`: only those
with this text in their names. The first row is a command that reads nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kafkatap.commands.values import parse_size
from kafkatap.reports.units import size as size_text
from tests.support.peak_memory import Cost, cost
from tests.wire.worst_messages import COMMANDS, WorstMessage, arguments_of, worst_arrays, write_worst


def main() -> int:
    options = _options()
    messages = [worst for worst in worst_arrays() if options.message in worst.name][:: options.every]
    commands = options.command or list(COMMANDS)
    found: dict[str, list[tuple[Cost, WorstMessage]]] = {command: [] for command in commands}
    largest = 0
    with TemporaryDirectory() as folder:
        capture, copy = Path(folder, "worst.pcap.zst"), Path(folder, "copy.pcapng")
        for number, worst in enumerate(messages, 1):
            write_worst(capture, worst, options.size)
            largest = max(largest, capture.stat().st_size)
            for command in commands:
                found[command].append((cost(*arguments_of(command, capture, copy)), worst))
            print(f"{number} of {len(messages)}: {worst.name}", file=sys.stderr)
    print(f"{len(messages)} messages of {size_text(options.size)}, in captures of at most {size_text(largest)}\n")
    print("| command | peak | message | slowest | failed |")
    print("|---|---:|---|---:|---:|")
    print(f"| apis | {cost('apis').mib} MiB | - | - | - |")
    for command, costs in found.items():
        most, worst = max(costs, key=lambda each: each[0].mib)
        slowest = max(each.seconds for each, _ in costs)
        failed = sum(each.code not in (0, 1) for each, _ in costs)
        print(f"| {command} | {most.mib} MiB | {worst.name} | {slowest:.1f} s | {failed} |")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", type=parse_size, default=4_000_000, help="bytes of a message")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth message")
    parser.add_argument("--command", action="append", help="only this command; may be repeated")
    parser.add_argument("--message", default="", metavar="TEXT", help="only messages with this text in their names")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
