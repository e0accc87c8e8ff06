"""Names beside the addresses in tables of reports, and in sentences."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kafkatap import analyze
from kafkatap.reports.hosts.host_files import HostFile, entries_of
from kafkatap.reports.hosts.host_table import HostTable
from kafkatap.reports.hosts.named_tables import ENDS, address_of, named_text, with_hosts
from kafkatap.reports.model import Column, ReportTable
from kafkatap.reports.section_parts.registry import OVER_FACTS, load_sections

from .running import kafkatap

SAMPLE = "samples/apache-4.3.pcap.zst"
MOVED = "2026-11-21T04:44:15Z"
CSV = f"""\
address,name,labels,from,to
10.77.0.1,payments-7f9,,,{MOVED}
10.77.0.1,orders-1b2,,{MOVED},
10.77.0.2,second.example
"""


def hosts(text: str = CSV) -> HostTable:
    return HostTable(entries_of([HostFile("h.csv", text.encode())], utc=True))


@pytest.fixture
def names(tmp_path: Path) -> str:
    path = tmp_path / "hosts.csv"
    path.write_text(CSV)
    return str(path)


def test_every_column_with_addresses_says_so() -> None:
    """Or else it would have no names."""
    left = {
        (table, column.name)
        for section in load_sections(tuple(OVER_FACTS))
        for table, columns in section.columns.items()
        for column in columns
        if column.kind in ("text", "texts") and re.search(r"\baddress(es)?\b", column.note) and not column.end
        if column.name != "sure"
    }
    assert not left
    assert {c.end for s in load_sections(tuple(OVER_FACTS)) for cs in s.columns.values() for c in cs} <= {"", *ENDS}


def table(*rows: tuple[object, ...]) -> ReportTable:
    columns = (
        Column("address", "address", "text", "", end="client"), Column("broker", "broker", "text", "", end="broker"),
        Column("first", "first", "time", ""), Column("of", "of", "texts", "", end="host"),
        Column("text", "text", "text", "", end="sentence"),
    )  # fmt: skip
    return ReportTable("t", "T", columns, list(rows))  # type: ignore[arg-type]


def test_a_row_has_the_names_of_its_time() -> None:
    found = hosts("10.0.0.1,a,,,1970-01-01T00:00:10Z\n10.0.0.1,b,,1970-01-01T00:00:10Z\n::1,six\n10.0.0.2,kafka\n")
    second = 1_000_000_000
    rows = list(with_hosts(table(
        ("10.0.0.1", "[::1]:9092", 5 * second, ("10.0.0.2:1", "10.9.9.9"), "to 10.0.0.1"),
        ("10.0.0.1", "10.0.0.2:9092", 15 * second, (), "to 10.0.0.1"),
        ("10.0.0.1", None, None, (), None), (None, "(other)", 10**18, (), ""),
    ), found, (0, 20 * second)))  # fmt: skip
    assert [row["client_host"] for row in rows] == ["a", "b", "a, then b", None]
    assert [row["broker_host"] for row in rows] == ["six", "kafka", None, None]
    assert [row["hosts"] for row in rows] == [("kafka", ""), None, None, None]
    assert [row["text"] for row in rows] == ["to 10.0.0.1 (a)", "to 10.0.0.1 (b)", None, ""]
    made = with_hosts(table(("10.9.9.9", "10.9.9.9:1", 0, (), "")), found, (0, 1))
    assert [column.name for column in made.columns] == ["address", "broker", "first", "of", "text"]


@pytest.mark.parametrize(("text", "shown"), [
    ("broker 10.0.0.1:9092 hung; 10.0.0.1:9092 again", "broker 10.0.0.1:9092 (a) hung; 10.0.0.1:9092 again"),
    ("broker 3 (10.0.0.1:9092)", "broker 3 (10.0.0.1:9092, a)"),
    ("from ::1.", "from ::1 (six)."), ("at [::1]:9092, and 04:44:16.898", "at [::1]:9092 (six), and 04:44:16.898"),
    ('client "10.0.0.1": slow', 'client "10.0.0.1": slow'), ("x10.0.0.1 10.0.0.11 1.10.0.0.1", None),
    ("version 10.0.0.1.2, 10.0.0.1-rc", None), ("10.0.0.0/8 and a::b::c", None),
])  # fmt: skip
def test_sentences(text: str, shown: str | None) -> None:
    found = hosts("10.0.0.1,a\n::1,six\n")
    assert named_text(text, lambda address: found.text(address, 0, 1)) == (shown or text)


def test_addresses_of_ends() -> None:
    assert [address_of(end) for end in ("10.0.0.1:9", "10.0.0.1", "[::1]:9", "::1", "(other)", "")] == [
        "10.0.0.1", "10.0.0.1", "::1", "::1", "(other)", "",
    ]  # fmt: skip


def test_a_report_in_every_form(names: str, tmp_path: Path) -> None:
    sections = "--sections=slowest,connections"
    said = json.loads(kafkatap("report", sections, "--hosts", names, "--json", SAMPLE).out)["reports"]
    rows = said["slowest"]
    seen = {(row["broker"].partition(":")[0], row["start"] >= MOVED[:-1], row["broker_host"]) for row in rows}
    assert {s for s in seen if s[0] == "10.77.0.1"} == {
        ("10.77.0.1", False, "payments-7f9"), ("10.77.0.1", True, "orders-1b2"),
    }  # fmt: skip
    whole = {row["broker_host"] for row in said["connections"] if row["broker"].startswith("10.77.0.1:")}
    assert whole == {"payments-7f9, then orders-1b2"}
    assert "second.example" in kafkatap("report", sections, "--hosts", names, SAMPLE).out
    kafkatap("report", sections, "--hosts", names, "--csv", str(tmp_path / "out"), SAMPLE)
    with open(tmp_path / "out" / "connections.csv") as lines:
        assert {row["broker_host"] for row in csv.DictReader(lines)} >= whole
    kafkatap("report", "--hosts", names, "--html", str(tmp_path / "page.html"), SAMPLE)
    assert "payments-7f9" in (tmp_path / "page.html").read_text()
    without = json.loads(kafkatap("report", sections, "--json", SAMPLE).out)["reports"]
    assert not [name for row in without["slowest"] for name in row if "host" in name]


def test_names_with_controls_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "hosts.csv"
    path.write_text('10.77.0.1,"evil\x1b[31m<evil>"\n')
    shown = kafkatap("report", "--sections", "connections", "--hosts", str(path), SAMPLE).out
    assert "evil" in shown
    assert "\x1b" not in shown
    kafkatap("report", "--hosts", str(path), "--html", str(tmp_path / "page.html"), SAMPLE)
    assert "evil\x1b" not in (tmp_path / "page.html").read_text()
    assert "<evil>" not in (tmp_path / "page.html").read_text()
    assert "\x1b" not in kafkatap("show", "-n", "5", "--hosts", str(path), SAMPLE).out


def test_rows_and_selections(names: str) -> None:
    whole = analyze(SAMPLE, hosts=names).exchanges.to_pylist()
    for row in whole:
        late = row["request_first"] is not None and row["request_first"].value >= 1_795_236_255_000_000_000
        expected = {"10.77.0.1": ("payments-7f9", "orders-1b2")[late], "10.77.0.2": "second.example"}
        assert (row["client_host"], row["broker_host"]) == (
            expected.get(row["client_ip"]), expected.get(row["broker_ip"]),
        )  # fmt: skip
    paid = {row["exchange"] for row in whole if row["client_host"] == "payments-7f9"}
    for selection in ({"client": "payments*"}, {"filter": 'client_host ~ "^payments"'}, {"client": "payments-7f9"}):
        found = analyze(SAMPLE, hosts=names, **selection).exchanges
        assert set(found["exchange"].to_pylist()) == paid
    assert analyze(SAMPLE, hosts=names, filter="client_host == null").exchanges.num_rows == sum(
        row["client_host"] is None for row in whole
    )
    assert set(analyze(SAMPLE).exchanges["client_host"].to_pylist()) == {None}
    connections = analyze(SAMPLE, hosts=names).connections.to_pylist()
    assert {row["broker_host"] for row in connections if row["broker_ip"] == "10.77.0.1"} == {
        "payments-7f9", "orders-1b2",
    }  # fmt: skip


def test_wrong_files(tmp_path: Path) -> None:
    path = tmp_path / "hosts.csv"
    path.write_text("10.0.0.1,a\n10.0.0.1,b\n")
    for command in ("report", "show", "extract"):
        more = ("-o", str(tmp_path / "x.pcap")) if command == "extract" else ()
        done = kafkatap(command, "--hosts", str(path), *more, SAMPLE)
        assert done.code == 2
        assert f"{path}, line 1) and b ({path}, line 2)" in done.err
        done = kafkatap(command, "--hosts", "/nowhere/x", *more, SAMPLE)
        assert (done.code, "no such file" in done.err) == (2, True)


def test_packet_comments_and_names_for_wireshark(names: str, tmp_path: Path) -> None:
    copy, hidden = tmp_path / "x.pcapng", tmp_path / "y.pcapng"
    chosen = ("--hosts", names, "-f", 'broker_host == "orders-1b2"', SAMPLE, "-o")
    assert kafkatap("extract", *chosen, str(copy)).code == 0
    data = copy.read_bytes()
    assert b":9092 (orders-1b2), exchange" in data
    assert re.search(rb"10\.77\.0\.2:\d+ \(second\.example\) > 10\.77\.0\.1:9092 \(orders-1b2\)", data)
    assert b"(payments-7f9)" not in data
    # 10.77.0.2, and its names in two blocks: Wireshark shows the last one.
    assert 0 < data.index(b"\x0a\x4d\x00\x02broker-2\0") < data.index(b"\x0a\x4d\x00\x02second.example\0")
    assert kafkatap("extract", "--anonymize", *chosen, str(hidden)).code == 0
    for word in (b"payments-7f9", b"orders-1b2", b"second.example"):
        assert word not in hidden.read_bytes()
    both = [analyze(str(path)).exchanges.num_rows for path in (copy, hidden)]
    assert both[0] == both[1] > 0


@pytest.mark.parametrize("command", ["show", "report", "records"])
def test_filters_say_that_they_know_names_of_files_alone(names: str, command: str) -> None:
    """Reports name brokers by what they advertise, so a user may try that."""
    chosen = (command, SAMPLE, "-f", 'broker_host == "kafka-1"')
    said = "kafkatap: filters know names of --hosts alone: without it, broker_host is null\n"
    assert said in kafkatap(*chosen).err
    assert said not in kafkatap(*chosen, "--hosts", names).err
    assert said not in kafkatap(command, SAMPLE, "-f", "latency > 1h").err


MOVES = Path(__file__).resolve().parents[2] / "samples" / "questions"
FILES = [MOVES / "hosts.hosts.csv", MOVES / "hosts.pods.json"]


def test_pods_that_moved_while_it_was_recorded() -> None:
    """Each row has the name of its time: a pod's client_id is its name (samples/questions/make_hosts.py)."""
    found = analyze(MOVES / "hosts.pcap.zst", hosts=FILES)
    rows = found.exchanges.to_pylist()
    by_address: dict[str, set[str]] = {}
    for row in rows:
        assert row["broker_host"] == "kafka-1"
        by_address.setdefault(row["client_ip"], set()).add(row["client_host"])
        if row["client_ip"] == "10.77.0.20":
            assert row["client_host"] == "node-1 (2 pods: log-shipper.kube-system, metrics.kube-system)"
        elif row["client_id"] is not None:
            assert row["client_host"] == row["client_id"]
    assert by_address["10.77.0.11"] == {"payments-7f9", "orders-1b2", "audit-c41"}
    assert by_address["10.77.0.12"] == {"payments-7f9", "orders-1b2"}
    sent = json.loads((MOVES / "hosts.truth.json").read_text())
    produces = [row for row in rows if row["api_name"] == "Produce" and row["client_ip"] != "10.77.0.20"]
    assert {row["client_host"] for row in produces} == sent.keys() - {"log-shipper", "metrics"}
    for name in sent:
        chosen = analyze(MOVES / "hosts.pcap.zst", hosts=FILES, filter=f'client_host ~ "^{name}"').exchanges
        assert set(chosen["client_id"].to_pylist()) - {None} == (
            {"log-shipper", "metrics"} if name in ("log-shipper", "metrics") else {name}
        )
    connections = found.connections.to_pylist()
    own = {row["client_host"] for row in connections if row["client_ip"] == "10.77.0.11"}
    assert own == by_address["10.77.0.11"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_tables_of_moved_pods_have_all_their_names(jobs: str) -> None:
    options = [word for path in FILES for word in ("--hosts", str(path))]
    done = kafkatap("report", "--json", "--sections", "connections,slowest", "--jobs", jobs, *options,
                    MOVES / "hosts.pcap.zst")  # fmt: skip
    said = json.loads(done.out)["reports"]
    names = {row["client_ip"]: row["client_host"] for row in said["connections"]}
    assert names["10.77.0.11"] == "payments-7f9, then orders-1b2 and 1 more"
    assert names["10.77.0.12"] == "orders-1b2, then payments-7f9"
    assert names["10.77.0.20"].startswith("node-1 (2 pods: ")
    of_pods = [row for row in said["slowest"] if not row["address"].startswith("10.77.0.20:")]
    assert of_pods
    assert all(row["client_host"] == row["client_id"] for row in of_pods)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_parquet_has_names(jobs: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    kafkatap("report", "--parquet", out, "--jobs", jobs, "--hosts", FILES[0], MOVES / "hosts.pcap.zst")
    wanted = analyze(MOVES / "hosts.pcap.zst", hosts=FILES[0])
    for name, key in (("exchanges", "exchange"), ("connections", "connection")):
        found = pq.read_table(out / f"{name}.parquet", columns=[key, "client_host"]).to_pylist()
        assert {row[key]: row["client_host"] for row in found} == {
            row[key]: row["client_host"] for row in getattr(wanted, name).to_pylist()
        }


def test_doctor_and_compare_have_names(names: str) -> None:
    assert "10.77.0.1:9093 (payments-7f9, then orders-1b2)" in kafkatap("doctor", "--hosts", names, SAMPLE).out
    done = kafkatap("compare", "--json", "--hosts", names, SAMPLE, "samples/live-4.4.pcap.zst")
    found = json.loads(done.out)["findings"]
    assert {row["broker_host"] for row in found if row["broker"] == "10.77.0.2:9095"} == {"second.example"}
    assert any("10.77.0.2:9095 (second.example)" in row["finding"] for row in found)
