"""The options of `kafkatap extcap`. Wireshark sets them; names that begin with --extcap are its own."""

from __future__ import annotations

import argparse

from ..shared_options import add_reading, add_selection
from ..values import parse_count, parse_duration, parse_size

DESCRIPTION = (
    'Be a capture interface of Wireshark and tshark: "Kafka exchanges on eth0". Wireshark runs this command; install '
    "it once as docs/wireshark.md describes."
)
EXAMPLES = """\
examples:
  tshark -G folders | grep -i extcap                                    # the folders of extcap programs
  cp "$(command -v kafkatap-extcap)" ~/.local/lib/wireshark/extcap/     # installs it for this user
  tshark -D                                                             # lists its interfaces
  tshark -i kafkatap-eth0                                               # Kafka on any port of eth0
  wireshark -k -i kafkatap-eth0 -o 'extcap.kafkatap_eth0.only:failed-or-slow'

exit codes:
  0    done: also if Wireshark closed its pipe
  2    wrong options, or capturing is not possible
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    what = parser.add_argument_group("packets")
    what.add_argument("--only", choices=("all", "failed", "slow", "failed-or-slow"), default="all",
                      help="leave out packets of other exchanges (default: all)")  # fmt: skip
    what.add_argument("--slow", type=parse_duration, default=1_000_000_000, metavar="DURATION",
                      help="exchanges that take longer are slow, unless they are long polls (default: 1s)")  # fmt: skip
    add_selection(what, times=False)
    add_reading(what)
    what.add_argument("--comments", choices=("all", "failed-or-slow", "none"), default="all",
                      help="which exchanges have a packet comment (default: all)")  # fmt: skip
    what.add_argument("--snap-length", type=parse_count, default=262_144, metavar="BYTES",
                      help="cut packets after BYTES, once they were decoded (default: 262144; 0: whole)")  # fmt: skip
    what.add_argument("--ring-size", type=parse_size, default=64 << 20, metavar="SIZE",
                      help="memory for packets that wait until they are known to be Kafka (default: 64m)")  # fmt: skip
    what.add_argument("--buffer-size", type=parse_size, default=64 << 20, metavar="SIZE",
                      help="size of the kernel's packet buffer (default: 64m)")  # fmt: skip
    _add_protocol(parser.add_argument_group("calls of Wireshark"))


def _add_protocol(calls: argparse._ArgumentGroup) -> None:
    """The options of extcap(4)."""
    calls.add_argument("--extcap-interfaces", action="store_true", help="list the interfaces and exit")
    calls.add_argument("--extcap-version", nargs="?", const="", metavar="X.Y", help="version of Wireshark")
    calls.add_argument("--extcap-interface", metavar="NAME", help="the interface of the other options")
    calls.add_argument("--extcap-dlts", action="store_true", help="print the link type of the interface and exit")
    calls.add_argument("--extcap-config", action="store_true", help="print the options of the interface and exit")
    calls.add_argument("--extcap-capture-filter", metavar="FILTER",
                       help="capture filter of tcpdump; without --capture, print what is wrong with it")  # fmt: skip
    calls.add_argument("--capture", action="store_true", help="capture until Wireshark closes the pipe")
    calls.add_argument("--fifo", metavar="PATH", help="with --capture: the pipe to Wireshark, which gets pcapng")
    for name in ("--extcap-control-in", "--extcap-control-out", "--extcap-reload-option", "--log-level", "--log-file"):
        calls.add_argument(name, metavar="VALUE", help=argparse.SUPPRESS)  # of no use here, and no error
    for name in ("--extcap-cleanup-postkill", "--debug"):
        calls.add_argument(name, action="store_true", help=argparse.SUPPRESS)
