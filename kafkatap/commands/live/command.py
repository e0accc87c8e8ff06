"""`kafkatap live`: from options to a monitor, a screen or lines, and the report at the end."""

from __future__ import annotations

import argparse
import errno
import gc
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

from kafkatap.kernels import store
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reports.batch import endpoint
from kafkatap.reports.build import build_report
from kafkatap.reports.section_parts.registry import counted_sections, needs_of

from ...complaints import complain, log_format, reason_of
from ...engine.engine import Engine
from ...engine.limits import Limits
from ...engine.read_options import ReadOptions
from ...engine.selection import Selection, incident_selection, selection_of
from ...engine.tls.key_log_threads import share_key_log
from ...installation import install_command, own_version
from ...live.background import abandon
from ...live.capture import capabilities, changed_user, interfaces
from ...live.capture.capabilities import Identity
from ...live.capture.packet_source import Capture, open_capture
from ...live.governor import Governor, Priority, allow_return, can_return
from ...live.joined_engine import JoinedEngine, Member
from ...live.memory_limits import memory_limits
from ...live.monitor import Monitor
from ...live.notices import Notices
from ...live.process_memory import keep_flat
from ..console import discard_output, no_kafka, refuse
from ..exit_codes import DONE, WRONG
from ..values import check_section_options, chosen_key_log, read_options, section_options

if TYPE_CHECKING:
    from kafkatap.reports.hosts.host_table import HostTable

    from ...live.screen.plain_lines import Plain

AnyEngine = TypeVar("AnyEngine", bound=Engine)
#: What is added to the niceness, where there is a way back.
NICE = 5
#: Percent of one core that a monitor uses, unless that drops packets.
USUAL_SHARE = 33.0
#: Seconds from one look at the files of --hosts to the next.
_LOOK_AT_HOSTS = 1.0
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
#: Error numbers of a write without a reader: a closed pipe, a terminal that hung up.
GONE = (errno.EPIPE, errno.EIO)


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    options.report &= options.log_format == "text"  # a text among JSON lines
    with log_format(options.log_format):
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    gc.enable()  # `kafkatap.__main__` turned it off while modules were imported
    store.verbose = options.verbose > 0
    if options.list_interfaces:
        print("\n".join([*interfaces.names(), interfaces.ANY]))
        return DONE
    notices = Notices()
    try:
        check_section_options(options)
        if options.local_brokers_only and sys.platform != "linux":
            raise ValueError("--local-brokers-only needs Linux; --broker ADDRESS works everywhere")
        reading = read_options(options)
        selection = selection_of(options, reading.definitions)
        incident = incident_selection(options, selection, reading.definitions)
        if options.keep:
            from ...live.recording.kept_packets import make_folder

            make_folder(options.keep_dir)
        engine = _engine(options, [selection, *([incident] if incident is not None else [])], reading)
        user = _next_user(options, engine)
        allow_return()
        capabilities.keep_only({*_kept_capabilities(options, engine), *capabilities.TO_OPEN})
        best = _be_nice(options.nice, options.verbose > 0)
        capture = _capture(options, notices.notify)
    except PermissionError:
        return _refuse_without_capability()
    except (ValueError, OSError) as error:
        return refuse(error)
    keep_flat()
    stop = Event()
    try:
        if user is not None:
            changed_user.become(user)
        capabilities.keep_only(_kept_capabilities(options, engine))
        with signals(stop) as watch_signals:
            limits = memory_limits(options.max_connections, options.max_waiting, options.max_names)
            governor = _governor(options, best, engine)
            monitor = Monitor(capture, engine, selection=selection, governor=governor, limits=limits,
                              sections=counted_sections(options.sections))  # fmt: skip
            watch_signals(monitor)
            return _watch(options, monitor, capture, incident, stop, notices)
    except OSError as error:
        if error.errno in GONE:
            discard_all_output()
            return DONE
        complain(reason_of(error))
        return WRONG
    finally:
        capture.close()


def _capture(options: argparse.Namespace, notify: Callable[[str], None]) -> Capture:
    names, expression = options.interface or [interfaces.ANY], " ".join(options.expression) or None
    if options.jobs == 1:
        return open_capture(
            names, expression, options.buffer_size, promiscuous=options.promiscuous, by_scapy=options.scapy,
            ready=store.prepare, notify=notify,
        )  # fmt: skip
    if options.scapy or sys.platform != "linux":
        raise ValueError("--jobs needs AF_PACKET, which only Linux has, and scapy does not use")
    from ...live.capture.shared_capture import open_shared_capture

    return open_shared_capture(
        names, expression, options.buffer_size, options.jobs,
        is_recorded=bool(options.write_pcap or options.keep), promiscuous=options.promiscuous,
        ready=store.prepare, notify=notify,
    )  # fmt: skip


def _watch(
    options: argparse.Namespace,
    monitor: Monitor,
    capture: Capture,
    incident: Selection | None,
    stop: Event,
    notices: Notices,
) -> int:
    from ...live.blind_seconds import BlindSeconds
    from ...live.event_watch import EventNotices

    if options.duration:
        _stop_after(options.duration / 1e9, stop)
    screen, engine_hosts = _wants_screen(options), monitor.engine.hosts
    lines = None
    with notices.in_background():
        try:
            closing = _outputs(options, monitor, capture, incident, notices.notify)
            monitor.sinks.append(EventNotices(notices.notify, options.utc))
            monitor.sinks.append(BlindSeconds(
                notices.notify, lambda: capture.counters()[1], lambda: monitor.governor.level, options.utc
            ))  # fmt: skip
        except (ValueError, OSError) as error:
            return refuse(error)
        watched = None if engine_hosts is None else _watch_hosts(options, engine_hosts, stop, notices.notify)
        try:
            if screen:
                _with_screen(monitor, stop, options, notices)
            else:
                lines = _with_lines(monitor, stop, options)
        finally:
            stop.set()
            if watched is not None:
                watched.join(1.0)  # it may wait for a pipe
            for close in closing:
                close()
        if lines is not None:
            _note_reader(lines, options, notices)
    return _report(options, monitor)


def _watch_hosts(
    options: argparse.Namespace, hosts: HostTable, stop: Event, notify: Callable[[str], None]
) -> Thread:  # fmt: skip
    """A thread that reads the files of --hosts again when they change, until `stop`."""
    from ...engine.host_names import WatchedHosts

    watched = WatchedHosts(hosts, options.hosts, options.utc)

    def work() -> None:
        while not stop.wait(_LOOK_AT_HOSTS):
            if (problem := watched.look()) is not None:
                notify(problem)

    thread = Thread(target=work, name="kafkatap-hosts", daemon=True)
    thread.start()
    return thread


def _governor(options: argparse.Namespace, best: int, engine: Engine) -> Governor:
    """The governor. It enforces `--max-cpu` even if that drops packets, but not its default. `best`: the niceness while
    packets wait."""
    asked_for = options.max_cpu is not None
    share = options.max_cpu if asked_for else USUAL_SHARE * options.jobs
    others = engine.native_threads if isinstance(engine, JoinedEngine) else tuple
    return Governor(
        share / 100 or None, options.topics, strict=asked_for, priority=Priority(best, others),
        headers_only=options.headers_only, threads=options.jobs,
    )  # fmt: skip


def _with_screen(monitor: Monitor, stop: Event, options: argparse.Namespace, notices: Notices) -> None:
    """Run the monitor in a new thread and the screen in this one, until one of them ends."""
    from ...live.screen.app import run_screen
    from ...live.screen.look import Kept

    kept = Kept()
    monitor.sinks += kept.sinks
    failed: list[BaseException] = []

    def work() -> None:
        try:
            monitor.run(stop.is_set)
        except BaseException as error:  # raised below, once the terminal is as it was
            failed.append(error)
        finally:
            stop.set()

    thread = Thread(target=work, name="kafkatap-live")
    with notices.on_screen():
        thread.start()
        try:
            run_screen(
                monitor, kept, stop=stop, utc=options.utc, notice=lambda: notices.newest,
                save=_saver(monitor, notices.notify),
            )  # fmt: skip
        finally:
            stop.set()
            thread.join()
    if failed:
        raise failed[0]


def _saver(monitor: Monitor, notify: Callable[..., None]) -> Callable[[str, str], str] | None:
    """What saves packets that are in memory; None: none are."""
    if not any(sink.reads_packets for sink in monitor.sinks):
        return None
    from ...live.recording.recorder import Recorder
    from ...live.recording.saved_packets import PacketSaver

    key_log = monitor.engine.key_log
    recorder = next(sink for sink in monitor.sinks if isinstance(sink, Recorder))
    return PacketSaver(recorder, () if key_log is None else key_log.paths, notify).save


def _with_lines(monitor: Monitor, stop: Event, options: argparse.Namespace) -> Plain:
    """Run the monitor, and write lines."""
    from ...live.screen.plain_lines import Plain

    lines = Plain(monitor, options.interval, sys.stderr if options.json else sys.stdout, options.utc,
                  options.log_format == "json")  # fmt: skip
    monitor.sinks.append(lines)
    monitor.run(stop.is_set)
    return lines


def _note_reader(lines: Plain, options: argparse.Namespace, notices: Notices) -> None:
    """Say what the reader of lines did not read. If it stopped reading, nothing more is written to it."""
    if lines.left_out:
        notices.notify(f"{lines.left_out:,} lines were not written, because nobody read them in time")
    if lines.is_stuck and options.json:
        abandon("stderr")
    elif lines.is_stuck:
        notices.notify("nobody reads standard output: the report is left out")
        abandon("stdout")


def _wants_screen(options: argparse.Namespace) -> bool:
    wants_lines = options.plain or options.json or options.log_format == "json"
    if wants_lines or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    if find_spec("textual") is None:
        complain(f"the screen needs textual ({install_command('live')}); these are lines instead")
        return False
    from ...live.screen.terminal import moves_cursor

    if not moves_cursor():
        complain("this terminal shows no screen (TERM is dumb, or not set); these are lines instead")
        return False
    return True


def _engine(options: argparse.Namespace, selections: list[Selection], reading: ReadOptions) -> Engine:
    """An engine that decodes the fields of the report and of these selections; with --jobs several as one."""
    options.topics &= not options.headers_only
    limits = reading.limits
    if limits is not None:  # the monitor forgets names before the engine has to refuse new ones
        limits = limits._replace(names=2 * limits.names)
    key_log = chosen_key_log(options, is_growing=True)
    reading = reading._replace(limits=limits, key_log=key_log)
    if options.jobs == 1:
        return _one_engine(Engine, options, selections, reading)
    if any(condition is not None and condition.packets for condition in (each.condition() for each in selections)):
        raise ValueError("with --jobs packets have no numbers that a filter could name")
    if key_log is not None:
        share_key_log(key_log)
    reading = reading._replace(limits=(limits or Limits()).of_one(options.jobs))
    return JoinedEngine([_one_engine(Member, options, selections, reading) for _ in range(options.jobs)])


def _one_engine(
    kind: type[AnyEngine], options: argparse.Namespace, selections: list[Selection], reading: ReadOptions
) -> AnyEngine:  # fmt: skip
    needed = [selection.engine_options for selection in selections]
    options.topics |= any(each.all_results for each in needed)
    probes = [inspector for each in needed for inspector in each.inspectors]
    problems = bool(options.parquet) or any(each.problems for each in needed)
    return kind(
        reading, all_results=options.topics, inspectors=probes, assembler=Assembler(), problems=problems,
        **needs_of(options.sections, bool(options.parquet))._asdict(),
    )  # fmt: skip


def _outputs(
    options: argparse.Namespace, monitor: Monitor, capture: Capture, incident: Selection | None,
    notify: Callable[..., None],
) -> list[Any]:  # fmt: skip
    """Add the requested sinks to the monitor. Return the functions to call at the end."""
    closing: list[Any] = []
    recorded = capture.recorded_from
    if options.write_pcap:
        from ...live.recording.recorder import LIMIT, Recorder

        monitor.sinks.append(Recorder(
            options.write_pcap, on=incident, size=options.ring_size, after=options.after, cool_down=options.cool_down,
            on_events=options.on_events, limit=options.write_limit or LIMIT, age=options.write_age,
            links=recorded.links, counters=recorded.counters, notify=notify,
        ))  # fmt: skip
    if options.keep:
        from ...live.recording.kept_packets import keeper

        monitor.sinks.append(keeper(
            options.keep_dir, options.keep, options.keep_limit, only_headers=options.keep_headers,
            with_secrets=options.keep_secrets, size=options.ring_size, links=recorded.links, counters=recorded.counters,
            notify=notify,
        ))  # fmt: skip
    if options.parquet:
        from ...live.export import parquet_files

        monitor.sinks.append(parquet_files.ParquetLog(
            options.parquet, rotate=options.rotate, limit=options.write_limit or parquet_files.LIMIT,
            age=options.write_age, notify=notify,
        ))  # fmt: skip
    if options.prometheus or options.otlp:
        from ...live.export.metrics import Metrics

        metrics = Metrics(options.series)
        monitor.sinks.append(metrics)
        if options.prometheus:
            from ...live.export.prometheus_server import serve

            server = serve(metrics, monitor, options.prometheus)
            closing.append(server.close)
            if not options.prometheus[1]:  # any port that is free
                complain(f"metrics are at http://{endpoint(*server.address[:2])}/metrics")
        if options.otlp:
            from ...live.export.otlp_exporter import export

            collector = None if options.otlp == "auto" else options.otlp
            closing.append(export(metrics, monitor, collector, options.otlp_interval, notify).close)
    if os.environ.get("NOTIFY_SOCKET"):
        from ...live.export.service_manager import ServiceManager

        monitor.sinks.append(ServiceManager(os.environ["NOTIFY_SOCKET"]))
    return closing


def _report(options: argparse.Namespace, monitor: Monitor) -> int:
    """Print the report since the start. Its reader may be gone, as after a dropped session."""
    context = monitor.context()
    result = build_report(
        monitor.windows.start, context, by=options.by,
        selected=selection_of(options).shown(context.first), sections=options.sections, over_facts=monitor.sections,
        options=section_options(options),
    )  # fmt: skip
    try:
        if options.json:
            from kafkatap.reports.rendering.json_report import write_json

            write_json(result, sys.stdout, own_version())
        elif options.report:
            from kafkatap.reports.rendering.text import write_text

            color = None if options.color == "auto" else options.color == "always"
            write_text(
                result, sys.stdout, top=options.number, utc=options.utc, color=color, whole_ledger=options.ledger
            )
        sys.stdout.flush()
        engine = monitor.engine  # of the whole run: the counts may have been started anew
        if (options.json or options.report) and not any(engine.ledger()["requests"].values()):
            complain(no_kafka(context._replace(packets=engine.packets)))
        if monitor.unread:
            complain(f"{monitor.unread:,} packets that waited at the end were not read in time; they count as dropped")
    except OSError:
        discard_all_output()
    return DONE


def discard_all_output() -> None:
    """Discard all further output, also that of the interpreter's last flush."""
    discard_output()
    os.dup2(1, 2)


@contextmanager
def signals(stop: Event) -> Iterator[Callable[[Monitor], None]]:
    """Until the end of the block, SIGNALS set `stop`. A second Ctrl-C ends at once. After the function was called with
    a monitor, SIGUSR1 resets its counts; and SIGHUP lets it re-open its files, if this process has no terminal that
    could hang up."""
    watched: list[Monitor] = []
    is_service = not _has_terminal()

    def end(number: int, _: Any) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    def anew(number: int, _: Any) -> None:
        for monitor in watched:
            monitor.reset() if number == signal.SIGUSR1 else monitor.reopen()

    numbers = (getattr(signal, name) for name in SIGNALS if hasattr(signal, name))
    before = {number: end for number in numbers if signal.getsignal(number) != signal.SIG_IGN}  # nohup ignores SIGHUP
    if hasattr(signal, "SIGUSR1"):
        before[signal.SIGUSR1] = anew
        if is_service and signal.SIGHUP in before:
            before[signal.SIGHUP] = anew
    restored = [(number, signal.signal(number, handler)) for number, handler in before.items()]
    try:
        yield watched.append
    finally:
        for number, handler in restored:
            signal.signal(number, handler)


def _has_terminal() -> bool:
    """Whether a terminal controls this process, or is one of its standard files."""
    if any(os.isatty(number) for number in range(3)):
        return True
    with suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
        return True
    return False


def _stop_after(seconds: float, stop: Event) -> None:
    def wait() -> None:
        stop.wait(seconds)
        stop.set()

    Thread(target=wait, name="kafkatap-duration", daemon=True).start()


def _next_user(options: argparse.Namespace, engine: Engine) -> Identity | None:
    """Whom root becomes when the sockets are open."""
    read = [] if engine.key_log is None else map(Path, engine.key_log.paths)
    return changed_user.next_user(options.user, _written(options), read)


def _written(options: argparse.Namespace) -> list[Path]:
    """The folders in which files are made later."""
    kept = options.keep and options.keep_dir
    places = [options.write_pcap and Path(options.write_pcap).parent, options.parquet, kept]
    return [Path(place) for place in places if place]


def _kept_capabilities(options: argparse.Namespace, engine: Engine) -> set[int]:
    """The capabilities that are needed while packets are read. Reading open sockets, and binding them to an interface
    that was created again, needs none. Root may need one for files of other users, or for a low port."""
    kept = capabilities.to_write(_written(options))
    kept |= capabilities.to_read(capabilities.installation())
    if engine.key_log is not None:
        kept |= capabilities.to_read_again(map(Path, engine.key_log.paths))
    return kept | (
        {capabilities.NET_BIND_SERVICE} if options.prometheus and 0 < options.prometheus[1] < 1024 else set()
    )


def _be_nice(asked: int | None, verbose: bool = False) -> int:
    """Add to the niceness; return the one before. Without the way back to that, packets would be dropped while other
    processes use the processors: then it stays as it is."""
    before, nice = os.nice(0), NICE if asked is None else asked
    if nice > 0 and not can_return(nice):
        if asked is None and not verbose:
            return before
        complain(f"--nice {nice} is not used: this process could not return to its niceness when packets wait.")
        complain(f"RLIMIT_NICE permits it: LimitNICE={before:+} in a unit, --ulimit nice={20 - before} for a container")
        return before
    try:
        os.nice(nice)
    except OSError as error:  # a lower one than it has, without the right to it
        complain(f"--nice {nice}: {reason_of(error)}")
    return before


def _refuse_without_capability() -> int:
    """Print two commands that grant the capability."""
    run = sys.argv if os.access(sys.argv[0], os.X_OK) else [sys.executable, *sys.orig_argv[1:]]
    complain("capturing needs the capability CAP_NET_RAW. Either run it as root, or give it to this Python once:")
    complain(f"  {shlex.join(['sudo', *run])}")
    complain(f"  {shlex.join(['sudo', 'setcap', 'cap_net_raw+ep', os.path.realpath(sys.executable)])}")
    return WRONG
