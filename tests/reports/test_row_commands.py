"""The commands of rows: they select what the row counts, and have no name that could do harm in a shell."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from kafkatap import analyze
from kafkatap.reports.build import build_report
from kafkatap.reports.model import Report, ReportTable
from kafkatap.reports.section_parts.registry import section_names
from kafkatap.reports.section_parts.selected import Selected
from kafkatap.reports.sections.row_commands import RowCommander

from . import rows as made
from .test_reports import report, small


@pytest.fixture(scope="module")
def whole(samples: Path) -> Report:
    return analyze(samples / "apache-4.3.pcap.zst").report(sections=section_names())


def commands(whole: Report, table: ReportTable, row: int = 0, captures: tuple[str, ...] = ()) -> tuple[str, ...]:
    return RowCommander(whole, captures).commands(table, table.rows[row])


def options(command: str) -> dict[str, str]:
    """The selection of a command, as arguments of `analyze`."""
    words = shlex.split(command)
    return {word[2:]: words[n + 1] for n, word in enumerate(words) if word in ("--filter", "--connection")}


def expression(command: str) -> str:
    return options(command)["filter"]


@pytest.mark.parametrize(("name", "least"), [("apache-4.3", 30), ("questions/storms", 10), ("questions/auth", 15)])
def test_each_command_selects_something(name: str, least: int, whole: Report, samples: Path) -> None:
    """The commands of the first and the last row of every table, and of every row of connections and logins: some of
    these have no Kafka message."""
    path = samples / f"{name}.pcap.zst"
    report = whole if name == "apache-4.3" else analyze(path).report(sections=section_names())
    found: dict[tuple[tuple[str, str], ...], str] = {}
    for table in report.tables:
        every = table.name in ("connections", "auth")
        for row in range(len(table.rows)) if every else sorted({0, len(table.rows) - 1}) if table.rows else ():
            for command in commands(report, table, row):
                if "packet == " not in command:
                    found.setdefault((*options(command).items(),), f"{table.name} {row}")
    assert len(found) >= least
    nothing = {each: row for each, row in found.items() if not len(analyze(path, **dict(each)).exchanges)}
    assert nothing == {}


def test_rows_without_messages_have_no_command(whole: Report) -> None:
    table = whole.table("connections")
    at = [c.name for c in table.columns].index("exchanges")
    silent = [row for row in range(len(table.rows)) if not table.rows[row][at]]
    assert silent  # connections that use TLS
    assert all(commands(whole, table, row) == () for row in silent)


def test_single_exchanges_can_be_extracted(whole: Report) -> None:
    table = whole.table("slowest")
    packet = table.rows[0][[c.name for c in table.columns].index("packet")]
    assert commands(whole, table, captures=("a.pcap",))[:2] == (
        f"kafkatap show --tree --filter 'packet == {packet}' a.pcap",
        f"kafkatap extract --filter 'packet == {packet}' -o packet-{packet}.pcapng a.pcap",
    )


def test_a_command_selects_what_its_row_counts(whole: Report, samples: Path) -> None:
    path = samples / "apache-4.3.pcap.zst"
    for name, column, number in (("latency", "count", 2), ("clients", "requests", 2), ("timeline", "requests", 3)):
        table = whole.table(name)
        at = [c.name for c in table.columns].index(column)
        found = analyze(path, filter=expression(commands(whole, table, number)[-1])).exchanges
        assert len(found) == table.rows[number][at], name


def test_a_row_of_one_exchange_follows_its_connection(whole: Report, samples: Path) -> None:
    for name in ("slowest", "first_errors"):
        table = whole.table(name)
        row = table.named(table.rows[0])
        command = commands(whole, table, captures=("a.pcap",))[-1]
        broker = f"--filter 'broker == \"{row['broker']}\"'"
        assert command == f"kafkatap show --connection {row['address']} {broker} a.pcap"
        found = analyze(samples / "apache-4.3.pcap.zst", **options(command)).exchanges
        assert row["packet"] in found["request_packet_first"].to_pylist()
        assert len(set(found["connection"].to_pylist())) == 1
    followed = build_report(small(), made.context(), selected=Selected("--connection 10.0.0.1:40001"))
    assert not any("--connection" in c for c in commands(followed, followed.table("clients"))[1:])


def test_packets_come_first(whole: Report) -> None:
    table = whole.table("errors")
    first, second = commands(whole, table, captures=("a b.pcap",))
    packet = table.rows[0][[c.name for c in table.columns].index("packet")]
    assert first == f"kafkatap show --tree --filter 'packet == {packet}' 'a b.pcap'"
    assert second.startswith("kafkatap show --filter 'error == LEADER_NOT_AVAILABLE and api == Metadata and topic == ")


def test_hostile_names_have_no_command() -> None:
    whole = report()
    clients = whole.table("clients")
    assert [bool(commands(whole, clients, n)) for n in range(3)] == [True, False, True]
    spoken = commands(whole, clients, 2)[0]
    assert expression(spoken) == 'client_id == "=cmd|\' /C calc\'!A0" and client_ip == "10.0.0.1"'
    quoted = RowCommander(whole).commands(clients, ("a'b\"c", "10.0.0.1", *clients.rows[0][2:]))
    assert quoted == ()
    other = RowCommander(whole).commands(clients, ("(other)", "10.0.0.1", *clients.rows[0][2:]))
    assert other == ()
    nobody = RowCommander(whole).commands(clients, (None, "10.0.0.1", *clients.rows[0][2:]))
    assert expression(nobody[0]) == 'client_id == null and client_ip == "10.0.0.1"'


def test_the_selection_of_the_report_stays() -> None:
    selected = "--from +1s --filter 'api == Fetch or error'"
    whole = build_report(small(), made.context(), selected=Selected(selected))
    command = commands(whole, whole.table("clients"))[0]
    assert command.startswith("kafkatap show --from +1s --filter ")
    assert expression(command) == '(api == Fetch or error) and client_id == billing and client_ip == "10.0.0.1"'


def test_live_reports_have_no_commands() -> None:
    from kafkatap.reports.batch import LIVE, FileInfo

    whole = report(files=[FileInfo("eth0", LIVE, 1, 40, 0, ("Ethernet",))])
    assert commands(whole, whole.table("clients")) == ()
