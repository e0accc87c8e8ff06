"""`kafkatap keys`: take the TLS secrets of Kafka's connections out of a running JVM, without a restart."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from ..replaceable import KEY_LOG, check_replaceable
from .exit_codes import DAMAGED, DONE, WRONG
from .shared_options import add_output
from .values import parse_duration, parse_network

if TYPE_CHECKING:
    from kafkatap_keys.jvm import Jvm
    from kafkatap_keys.outlets import Outlet
    from kafkatap_keys.taking import Taken

DESCRIPTION = """\
Take the TLS secrets of Kafka's connections out of a running JVM: those of connections that are open, and of new ones.

The JVM is a broker's, or that of a Java client. Nothing is restarted. kafkatap loads a small agent into the JVM, which
ends after --duration or Ctrl-C. It is for the owners of the broker: with these secrets, captures can be read in plain
text. docs/tls.md says what it changes in the JVM.
"""
EXAMPLES = """\
examples:
  sudo kafkatap keys --pid 4242 --duration 5m --socket /run/kafkatap.keys
  sudo kafkatap live --keylog /run/kafkatap.keys       # at the same time: no secret is on a disk
  sudo kafkatap keys --pid $(pgrep -f kafka.Kafka) --duration 10m -o /dev/shm/keys.log
  kafkatap report --keylog /dev/shm/keys.log capture.pcap
  sudo kafkatap keys --pid 4242 --duration 1m --peer 10.1.7.0/24 -o keys.log    # of some clients alone

Run it as the JVM's user or as root, who becomes that user. A key log that exists is continued.

exit codes:
  0    the secrets were taken, and the agent has ended
  1    some secrets could not be taken, or the JVM ended meanwhile
  2    wrong options, or the JVM cannot be attached to
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    parser.add_argument("--pid", type=int, required=True, metavar="PID", help="the process id of the JVM")
    parser.add_argument(
        "--duration", type=parse_duration, default="5m", metavar="DURATION",
        help="for how long secrets of new connections are taken: 30s, 5m (default: 5m); Ctrl-C ends it earlier",
    )  # fmt: skip
    to = parser.add_mutually_exclusive_group(required=True)
    add_output(to, "FILE", "write a key log that only you can read", is_needed=False)
    to.add_argument(
        "--socket", metavar="PATH", help="write to the readers of this socket: live --keylog PATH, report --follow"
    )
    parser.add_argument(
        "--peer", dest="peers", type=parse_network, action="append", default=[], metavar="NET",
        help="only connections with these addresses: 10.1.7.3, 10.1.0.0/16; may be repeated",
    )  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from ..complaints import complain
    from ..installation import install_command
    from .console import SIGNALS_OF_FOLLOW, interrupts, refuse

    try:
        from kafkatap_keys.jvm import AttachError, Jvm
        from kafkatap_keys.taking import Agent, take
    except ImportError:
        complain(f"this needs the extra [keys]; install it: {install_command('keys')}")
        return WRONG
    seconds = max(1, round(options.duration / 1e9))
    try:
        agent, jvm = Agent(), Jvm(options.pid)
        sys.stderr.write(_plan(jvm, options))
        if not options.yes and not _agrees():
            return WRONG
        outlet = _outlet(options)
        try:
            _become_user_of(jvm)
        except OSError:
            outlet.close()
            raise
    except AttachError as error:
        complain(str(error))
        return WRONG
    except (ValueError, OSError) as error:
        return refuse(error)
    progress = _Progress()
    with interrupts(SIGNALS_OF_FOLLOW) as stop:
        try:
            taken = take(jvm, agent, outlet, seconds, options.peers, lambda: bool(stop), progress.show)
        except AttachError as error:
            complain(str(error))
            return WRONG
        except OSError as error:  # the key log cannot be written any more
            return refuse(error)
        finally:
            outlet.close()
            progress.end()
    _finish(taken)
    return DONE if taken.is_complete and not taken.missed else DAMAGED


def _plan(jvm: Jvm, options: argparse.Namespace) -> str:
    """What will be done, for the one who agrees to it."""
    from kafkatap.reports.units import duration, safe

    where = safe(options.output or options.socket)
    who = _name(os.geteuid())
    peers = f" with {', '.join(options.peers)}" if options.peers else ""
    return f"""\
Process {jvm.pid}: {safe(jvm.main)}, user {_name(jvm.user)}.
For {duration(options.duration)}, kafkatap takes the TLS secrets of its Kafka connections{peers}:
of those that are open, and of new ones. They go to {where}, which only {who} can read.
- An agent is loaded into the JVM. It adds a thread, and has Java's TLS note secrets. Both end with this command.
  The JVM keeps the agent's classes, and its own Attach Listener.
- Who has the secrets and a capture reads all that these connections carry, passwords and records too, also what was
  captured before. Delete them when you are done.
"""


def _agrees() -> bool:
    if not sys.stdin or not sys.stdin.isatty():
        sys.stderr.write("Nothing was done: say --yes if this is wanted.\n")
        return False
    sys.stderr.write("Go on? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _outlet(options: argparse.Namespace) -> Outlet:
    from kafkatap_keys.outlets import KeyFile, KeySocket

    if not options.output:
        return KeySocket(options.socket)
    check_replaceable(options.output, KEY_LOG, overwrite=True)  # lines are added to it
    return KeyFile(options.output)


def _become_user_of(jvm: Jvm) -> None:
    """Root has no rights from here on but those of the JVM's user. The JVM also compares the group."""
    if os.geteuid() == 0 and (jvm.user, jvm.group) != (0, os.getegid()):
        os.setgroups([jvm.group])
        os.setresgid(jvm.group, jvm.group, jvm.group)
        os.setresuid(jvm.user, jvm.user, jvm.user)


def _name(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


class _Progress:
    """Says what is taken: on a terminal in a line that changes."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._has_begun = False

    def show(self, taken: Taken) -> None:
        if self._is_terminal or not self._has_begun:
            now = f"{taken.open:,} open connections, {taken.handshakes:,} new ones; Ctrl-C ends this"
            sys.stderr.write(f"\r{now}" if self._is_terminal else f"{now}\n")
            sys.stderr.flush()
        self._has_begun = True

    def end(self) -> None:
        if self._is_terminal and self._has_begun:
            sys.stderr.write("\n")


def _finish(taken: Taken) -> None:
    from ..complaints import complain

    ended = " The agent has ended." if taken.is_complete else ""
    whose = f"{taken.open:,} open and {taken.handshakes:,} new connections"
    sys.stderr.write(f"Secrets of {whose}, {taken.lines:,} lines.{ended}\n")
    if taken.missed:
        complain(f"{taken.missed:,} secrets could not be taken" + (f": {taken.problem}" if taken.problem else ""))
    if not taken.is_complete:
        complain("the JVM has ended, or its agent has; new connections may be missing")
