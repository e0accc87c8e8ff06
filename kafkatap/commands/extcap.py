"""`kafkatap extcap`: what Wireshark asks for, or a capture into its pipe.

Wireshark sets the options; names that begin with --extcap are its own. It runs the command several times whenever it
starts, so only a capture imports more than it needs to print.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from pathlib import Path
from threading import Event

from ..engine.read_options import ReadOptions
from ..extcap.protocol import interface_of, list_interfaces, list_link_types, list_options
from ..installation import own_version
from .exit_codes import DONE, WRONG
from .shared_options import add_reading, add_selection
from .values import parse_count, parse_duration, parse_size

DESCRIPTION = (
    'Be a capture interface of Wireshark and tshark: "Kafka exchanges on eth0". Wireshark runs this command; install '
    "it once as docs/wireshark-users.md describes."
)
EXAMPLES = """\
examples:
  tshark -G folders | grep -i extcap                                    # the folders of extcap programs
  cp "$(command -v kafkatap-extcap)" ~/.local/lib/wireshark/extcap/     # installs it for this user
  tshark -D                                                             # lists its interfaces
  tshark -i kafkatap-eth0                                               # Kafka on any port of eth0
  wireshark -k -i kafkatap-eth0 -o 'extcap.kafkatap_eth0.exchanges:failed-or-slow'

exit codes:
  0    done: also if Wireshark closed its pipe
  2    wrong options, or capturing is not possible
"""

#: The filter expressions of --exchanges and --comments; {slow} is a duration.
_EXPRESSIONS = {
    "failed": "error",
    "slow": "latency > {slow} and not long_poll",
    "failed-or-slow": "error or (latency > {slow} and not long_poll)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    what = parser.add_argument_group("packets")
    what.add_argument("--exchanges", choices=("all", "failed", "slow", "failed-or-slow"), default="all",
                      help="only the packets of these exchanges (default: all)")  # fmt: skip
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


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    try:
        if options.extcap_interfaces:
            return _print_interfaces()
        if options.extcap_interface is None:
            from ..complaints import complain

            complain("Wireshark runs this command; docs/wireshark-users.md describes how to install it")
            return WRONG
        name = interface_of(options.extcap_interface)
        if options.extcap_config:
            print("\n".join(list_options()))
            return DONE
        if options.capture:
            return _capture(options, name)
        return _print_interface(options, name)
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        from .console import refuse

        return refuse(error)


def _print_interfaces() -> int:
    from ..live.capture import interfaces

    print("\n".join(list_interfaces([*interfaces.names(), interfaces.ANY], own_version())))
    return DONE


def _print_interface(options: argparse.Namespace, name: str) -> int:
    """The link type of an interface, or what is wrong with a capture filter: Wireshark takes no output as right."""
    from ..live.capture import interfaces

    link_type = interfaces.find(name).link_type
    if options.extcap_dlts:
        print("\n".join(list_link_types(link_type)))
    elif options.extcap_capture_filter:
        from ..live.capture.capture_filter import compile_filter

        try:
            compile_filter(options.extcap_capture_filter, link_type)
        except ValueError as error:
            print(error)
    return DONE


def _capture(options: argparse.Namespace, name: str) -> int:
    """Capture into the pipe until Wireshark closes it or ends this process."""
    gc.enable()  # `kafkatap.__main__` turned it off while modules were imported
    from kafkatap.kernels import store
    from kafkatap.reassembly.assembler import Assembler
    from kafkatap.reassembly.pcap import LONGEST_PACKET

    from ..complaints import complain
    from ..engine.engine import Engine
    from ..engine.limits import Limits
    from ..engine.selection import Selection, selection_of
    from ..extcap.kafka_capture import Choice, KafkaCapture
    from ..extcap.protocol import PacketPipe
    from ..live.capture import capabilities
    from ..live.capture.packet_source import open_capture
    from ..live.process_memory import keep_flat
    from .values import chosen_definitions, chosen_hosts, chosen_key_log

    if not options.fifo:
        raise ValueError("--capture needs --fifo PATH")
    definitions = chosen_definitions(options)
    selection = selection_of(options, definitions)
    slow = f"{options.slow}ns"
    commented = None if options.comments == "none" else Selection.of(filter=_expression(options.comments, slow))
    if options.exchanges != "all":
        selection = Selection.of(filter=_expression(options.exchanges, slow), definitions=definitions).beside(selection)
    needed = [each.engine_options for each in (selection, commented) if each is not None]
    read = ReadOptions(
        tuple(options.port or ()), definitions, limits=Limits(), key_log=chosen_key_log(options, is_growing=True),
        hosts=chosen_hosts(options),
    )  # fmt: skip
    engine = Engine(
        read, all_results=any(each.all_results for each in needed),
        inspectors=[inspector for each in needed for inspector in each.inspectors], assembler=Assembler(),
        tables=False, problems=False,
    )  # fmt: skip
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    pipe = PacketPipe(options.fifo, stop.is_set)
    try:
        source = open_capture(
            [name], options.extcap_capture_filter or None, options.buffer_size, ready=store.prepare, notify=complain
        )
    except PermissionError:
        complain("capturing needs the capability CAP_NET_RAW. Give it to this Python once:")
        complain(f"  sudo setcap cap_net_raw+ep {os.path.realpath(sys.executable)}")
        return WRONG
    try:
        kept = capabilities.to_read(capabilities.installation())
        if engine.key_log is not None:
            kept |= capabilities.to_read_again(map(Path, engine.key_log.paths))
        capabilities.keep_only(kept)
        keep_flat()
        choice = Choice(selection, commented, options.snap_length or LONGEST_PACKET, options.ring_size)
        KafkaCapture(source, engine, pipe, source.links, choice).run(stop.is_set)
    finally:
        source.close()
        pipe.close()
    return DONE


def _expression(name: str, slow: str) -> str | None:
    """The filter expression of --exchanges or --comments; None: all exchanges."""
    return _EXPRESSIONS[name].format(slow=slow) if name in _EXPRESSIONS else None
