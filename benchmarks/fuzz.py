"""Fuzz every part that reads bytes that others made: captures, messages, records, filters, definitions, the commands.

    python benchmarks/fuzz.py --seconds 600 [--target streams --target machine] [--seed 2] [--jobs 2]
    python benchmarks/fuzz.py --seconds 600 --mode checked      # kernels that check every index
    python benchmarks/fuzz.py --seconds 600 --guided            # inputs that atheris finds by coverage
    python benchmarks/fuzz.py --replay findings/*.bin

It prints a table, also after Ctrl-C: inputs of each target, processor time, and findings. Inputs that reveal something
are cut down and written to `--findings`. The exit code is 1 if there are any. The same seed makes the same inputs.
`--guided` needs `pip install atheris`; it runs kernels as plain Python, and is much slower for each input.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from threading import Event, Lock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.fuzzing.session import MODES, Outcome, Worker, keep
from tests.fuzzing.target import examine
from tests.fuzzing.targets import TARGETS

#: A target's share of the time is given in turns of at most so many seconds, so that all targets get some.
_TURN = 30.0


def main() -> int:
    options = _options()
    if options.replay:
        return _replay(options.replay)
    names = options.target or list(TARGETS)
    if options.guided:
        from tests.fuzzing.guided import run_guided

        share = options.seconds / len(names)
        outcomes = {name: run_guided(name, share, options.seed, options.corpus) for name in names}
    else:
        outcomes = _run(names, options)
    for name, outcome in outcomes.items():
        for found in outcome.found:
            path = keep(options.findings, name, found)
            print(f"{path}: {found.kind}", file=sys.stderr)
    _print_table(outcomes)
    return int(any(outcome.counts for outcome in outcomes.values()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="wall time of each job, for all targets together")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="only this target; may be repeated")
    parser.add_argument("--seed", default="1", help="inputs are made from it (default: 1)")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes (default: 1)")
    parser.add_argument("--mode", choices=sorted(MODES), default="compiled", help="how kernels run (default: compiled)")
    parser.add_argument("--guided", action="store_true", help="inputs by coverage, with atheris")
    parser.add_argument("--corpus", type=Path, help="with --guided: a folder that keeps inputs that reach new code")
    parser.add_argument(
        "--findings", type=Path, default=Path("findings"), help="folder for inputs that reveal something"
    )
    parser.add_argument(
        "--replay", nargs="+", type=Path, help="check these inputs, named TARGET-….bin, and nothing else"
    )
    return parser.parse_args()


def _run(names: list[str], options: argparse.Namespace) -> dict[str, Outcome]:
    """Run all targets in turns, in each job with seeds of its own. Ctrl-C ends it after the turns of now."""
    outcomes = {name: Outcome() for name in names}
    turns = max(1, round(options.seconds / len(names) / _TURN))
    turn = options.seconds / len(names) / turns
    ends, adding = Event(), Lock()

    def job(number: int) -> None:
        with Worker(options.mode) as worker:
            for n, name in product(range(turns), names):
                if ends.is_set():
                    return
                found = worker.run(name, f"{options.seed}.{number}.{n}", seconds=turn)
                with adding:
                    outcomes[name].add(found)

    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(job, number) for number in range(options.jobs)]
        try:
            for each in jobs:
                each.result()
        except KeyboardInterrupt:
            ends.set()
    return outcomes


def _replay(paths: list[Path]) -> int:
    code = 0
    for path in paths:
        finding = examine(TARGETS[path.name.split("-")[0]], path.read_bytes())
        print(f"{path}: {'nothing' if finding is None else finding.text}")
        code |= finding is not None
    return code


def _print_table(outcomes: dict[str, Outcome]) -> None:
    print("| target | inputs | processor time, s | inputs/s | peak memory, MB | findings |")
    print("|---|---|---|---|---|---|")
    total = Outcome()
    for name, o in outcomes.items():
        _print_row(name, o)
        total.add(o)
    _print_row("all", total)


def _print_row(name: str, o: Outcome) -> None:
    rate = o.inputs / (o.cpu + o.made) if o.cpu else 0.0
    findings = ", ".join(f"{count} x {kind}" for kind, count in o.counts.items()) or "0"
    print(f"| {name} | {o.inputs:,} | {o.cpu + o.made:.0f} | {rate:.0f} | {o.peak / 1e6:.0f} | {findings} |")


if __name__ == "__main__":
    sys.exit(main())
