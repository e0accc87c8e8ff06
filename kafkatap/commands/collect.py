"""`kafkatap collect`: fetch a span of packets from the hosts where `live --keep` keeps them, and report on them."""

from __future__ import annotations

import argparse
import errno
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .exit_codes import DAMAGED, DONE, INTERRUPTED, LEFT_OUT, WRONG
from .shared_options import add_output, add_overwrite, add_verbose
from .values import parse_duration, parse_size, parse_when

if TYPE_CHECKING:
    from ..collect.collection import Collected

DESCRIPTION = """\
Fetch the packets of a span of time from many hosts at once, and report on all of them.

On each host runs kafkatap live --keep. They are reached by ssh, or by kubectl exec: nothing listens for this, and a
host whose key is not known is refused. The clock of each host is measured, and its times are corrected.
"""
EXAMPLES = """\
examples:
  kafkatap collect --at 03:12 broker-1 broker-2 broker-3           a minute before and after 03:12
  kafkatap collect --at 03:12 --around 5m -o incident broker-1 admin@10.0.0.2 ssh://broker-3:2222
  kafkatap collect --at 03:12 --sudo broker-1 broker-2             where root keeps the packets
  kafkatap collect --at 03:12 kubectl:kafka/broker-0/tap kubectl:kafka/broker-1/tap
  kafkatap collect --at 03:12 broker-1 broker-2 -- --sections events,errors --html incident.html

Options behind -- are those of kafkatap report.

exit codes:
  0    done
  1    done, but a capture is damaged or cut short, or no Kafka was found
  2    wrong options, or no host has packets of that time
  4    done, but hosts are left out, or a part of their packets: lines name them
  130  interrupted
"""
#: What -h shows.
OFTEN = ("--at", "--around", "--output", "--sudo", "--dir", "--no-report")
AROUND = 60_000_000_000
_DAY = 86_400_000_000_000
#: How far beyond now a time of day may lie: later ones are yesterday's.
_SOON = 60_000_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    from ..live.recording.kept_names import FOLDER

    parser.add_argument("hosts", nargs="+", metavar="HOST",
                        help="a destination of ssh (broker-1, admin@10.0.0.1, ssh://broker-1:2222), or "
                        "kubectl:NAMESPACE/POD[/CONTAINER]")  # fmt: skip
    what = parser.add_argument_group("packets")
    what.add_argument("--at", type=parse_when, required=True, metavar="TIME",
                      help="the time, by the clock of this host: 03:12, 03:12:30, '2026-11-21 03:12', or seconds since "
                      "the epoch; a time of day that is still to come is yesterday's")  # fmt: skip
    what.add_argument("--around", type=parse_duration, default=AROUND, metavar="DURATION",
                      help="fetch what came within DURATION before or after TIME (default: 1m)")  # fmt: skip
    what.add_argument("--utc", action="store_true", help="show and read times in UTC instead of local time")
    where = parser.add_argument_group("hosts")
    where.add_argument("--dir", default=FOLDER, metavar="DIR",
                       help=f"the folder of live --keep-dir on the hosts (default: {FOLDER})")  # fmt: skip
    where.add_argument("--sudo", action="store_true", help="read it as root there, with sudo -n")
    where.add_argument("--ssh-config", metavar="FILE",
                       help="what ssh reads in place of ~/.ssh/config: ports, keys, jump hosts")  # fmt: skip
    where.add_argument("--most", type=parse_size, default=4 << 30, metavar="SIZE",
                       help="fetch at most SIZE from each host (default: 4g)")  # fmt: skip
    how = parser.add_argument_group("output")
    add_output(how, "DIR", "write a capture for each host to DIR (default: none is left after the report)",
               is_needed=False)  # fmt: skip
    add_overwrite(how)
    how.add_argument("--no-report", dest="report", action="store_false", help="print no report at the end")
    add_verbose(how)


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from ..collect.collection import Wanted, collect
    from ..collect.places import place_of
    from .console import refuse

    hosts, words = _hosts_and_words(options.hosts)
    try:
        if not hosts:
            raise ValueError("collect needs a host before --")
        if not (options.report or options.output):
            raise ValueError("--no-report needs --output: otherwise nothing is left")
        if words and not options.report:
            raise ValueError("options behind -- are those of the report, which --no-report leaves out")
        places = [place_of(text, options.ssh_config) for text in dict.fromkeys(hosts)]
        at = moment_of(options.at, time.time_ns(), options.utc)
        wanted = Wanted(at - options.around, at + options.around, options.dir, options.most, options.sudo)
        with _folder(options.output) as folder:
            try:
                found = collect(places, wanted, folder, lambda one: _tell(one, options.verbose), options.overwrite)
            except KeyboardInterrupt:
                return INTERRUPTED
            return _finish(options, wanted.begin, wanted.end, found, words)
    except (ValueError, OSError) as error:
        return refuse(error)


def _hosts_and_words(named: Sequence[str]) -> tuple[list[str], list[str]]:
    """The hosts, and the options behind --: no host begins as an option does."""
    first = next((place for place, word in enumerate(named) if word.startswith("-")), len(named))
    return list(named[:first]), list(named[first:])


def moment_of(text: str, now: int, utc: bool) -> int:
    """A time as ns since the epoch. A time of day is today's, or if that is still to come yesterday's. ValueError for
    one that depends on a capture, or that is still to come."""
    from kafkatap.reports.literals import read_moment

    moment = read_moment(text, utc)
    if moment.after_first:
        raise ValueError(f"--at {text}: there is no capture yet whose first packet could be counted from")
    at = moment.at(now)
    if moment.of_day and at > now + _SOON:
        at = moment.at(now - _DAY)
    if at > now + _SOON:
        raise ValueError(f"--at {text} is still to come")
    return at


@contextmanager
def _folder(output: str | None) -> Iterator[Path]:
    """The folder of the captures; without an output one that is removed at the end."""
    import tempfile

    if output is None:
        with tempfile.TemporaryDirectory(prefix="kafkatap-") as name:  # 0700
            yield Path(name)
        return
    if os.path.lexists(output) and not os.path.isdir(output):
        raise NotADirectoryError(errno.ENOTDIR, "this is no folder", output)
    os.makedirs(output, 0o700, exist_ok=True)
    yield Path(output)


def _tell(one: Collected, verbose: int) -> None:
    """Print a line on what came of a host."""
    from kafkatap.reports import units

    from ..collect.collection import clock_words
    from ..complaints import complain

    if one.path is None:
        complain(f"{one.place.name} is left out: {one.reason}")
        return
    assert one.written is not None
    assert one.clock is not None
    packets = f"{one.written.packets:,} packets" if one.written.packets > 1 else "1 packet"
    complain(f"{one.place.name}: {packets}; {clock_words(one.clock)}")
    if one.trouble:
        complain(f"{one.place.name}: a part is missing: {one.trouble}")
    if one.has_secrets:
        complain(f"{one.place.name} keeps tokens of SASL (live --keep-secrets): its capture may have passwords")
    if verbose:
        first, last = (units.iso(at) for at in (one.written.first, one.written.last))
        complain(f"{one.place.name}: from {first} to {last}, {one.path}")


def _finish(
    options: argparse.Namespace, begin: int, end: int, found: Sequence[Collected], words: Sequence[str]
) -> int:  # fmt: skip
    """Report on the captures; return the exit code."""
    from ..complaints import complain

    paths = [one.path for one in found if one.path is not None]
    if not paths:
        complain("no host has packets of that time" if len(found) > 1 else "nothing is collected")
        return WRONG
    left_out = [one.place.name for one in found if one.path is None or one.trouble]
    code = DONE
    if options.report:
        code = _report(paths, words, options.utc)
    if options.output:
        many = "1 capture" if len(paths) == 1 else f"{len(paths)} captures"
        complain(f"{options.output}: {many}; kafkatap report {options.output} reads them as one")
    if code in (DONE, DAMAGED) and left_out:
        complain(f"{len(left_out)} of {len(found)} hosts are left out, whole or in part: {', '.join(left_out)}")
        return LEFT_OUT
    return code


def _report(paths: Sequence[str], words: Sequence[str], utc: bool) -> int:
    """Run `kafkatap report` over captures; return its exit code."""
    from .command_parser import parse, part_of

    options = parse(["report", *(["--utc"] if utc else []), *words, *paths])
    code: int = part_of("report", "command").run(options)
    return code
