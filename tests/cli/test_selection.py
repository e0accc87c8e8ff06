"""One selection: the same exchanges and counts, whichever command, output or option asks for them.

Each case selects by options of the command line, by arguments of the library, and by a plain pandas mask over the
unfiltered tables. All have to agree. Commands run in this process: a case takes some tenths of a second.
"""

from __future__ import annotations

import csv
import fnmatch
import io
import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from kafkatap import analyze
from kafkatap.__main__ import main

MS = 1_000_000
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Frames:
    """The unfiltered tables of a capture."""

    x: Any  # exchanges
    r: Any  # results
    first: Any  # the time of the first packet

    def with_result(self, mask: Any) -> Any:
        """Which exchanges have a result of this kind."""
        return self.x.exchange.isin(set(self.r.exchange[mask]))

    def on_topic(self, test: Callable[[str], bool]) -> Any:
        by_name = self.x.topics.map(lambda names: any(map(test, names)))
        return by_name | self.with_result(self.r.topic_id.map(lambda t: isinstance(t, str) and test(t)))

    def code(self, *codes: int) -> Any:
        return self.x.errors.map(lambda errors: any(e["code"] in codes for e in errors))

    def since(self, ns: int) -> Any:
        """Exchanges that began so long after the first packet, or later."""
        return self.x.request_first >= self.first + pd.Timedelta(ns, "ns")


Mask = Callable[[Frames], Any]
F = Frames


def matches(*globs: str) -> Callable[[str], bool]:
    return lambda text: any(fnmatch.fnmatchcase(text, glob) for glob in globs)


def texts(column: Any, test: Callable[[str], bool]) -> Any:
    return column.map(lambda text: isinstance(text, str) and test(text))


def client(f: F, *globs: str) -> Any:
    return texts(f.x.client_id, matches(*globs)) | texts(f.x.client_ip, matches(*globs))


#: Options of the command line, arguments of `analyze`, and the same as a mask.
OPTIONS: list[tuple[str, dict[str, Any], Mask]] = [
    ("--client lag-exporter", {"client": "lag-exporter"}, lambda f: client(f, "lag-exporter")),
    ("--client 'svc-*' --client 10.77.0.1", {"client": ["svc-*", "10.77.0.1"]},
     lambda f: client(f, "svc-*", "10.77.0.1")),
    ("--client '*console*'", {"client": "*console*"}, lambda f: client(f, "*console*")),
    ("--client 10.77.0.?", {"client": "10.77.0.?"}, lambda f: client(f, "10.77.0.?")),
    ("--client nobody", {"client": "nobody"}, lambda f: client(f, "nobody")),
    ("--topic small43.orders", {"topic": "small43.orders"}, lambda f: f.on_topic(matches("small43.orders"))),
    ("--topic t1", {"topic": "t1"}, lambda f: f.on_topic(matches("t1"))),
    ("--topic 't*' --topic '*orders'", {"topic": ["t*", "*orders"]}, lambda f: f.on_topic(matches("t*", "*orders"))),
    ("--topic AAAAAAAAAAAAAAAAAAAAAQ", {"topic": "AAAAAAAAAAAAAAAAAAAAAQ"},
     lambda f: f.on_topic(matches("AAAAAAAAAAAAAAAAAAAAAQ"))
     | ((f.x.api_key == 1) & f.on_topic(matches("__cluster_metadata")))),
    ("--api Fetch", {"api": "Fetch"}, lambda f: f.x.api_key == 1),
    ("--api produce,3 --api list_offsets", {"api": ["produce", "3", "list_offsets"]},
     lambda f: f.x.api_key.isin([0, 3, 2])),
    ("--connection 10.77.0.10:54952", {"connection": "10.77.0.10:54952"},
     lambda f: (f.x.client_ip == "10.77.0.10") & (f.x.client_port == 54952)),
    ("--connection 10.77.0.10:54952 --connection 10.77.0.10:54914 --api Produce",
     {"connection": ["10.77.0.10:54952", "10.77.0.10:54914"], "api": "Produce"},
     lambda f: f.x.client_port.isin([54952, 54914]) & (f.x.api_key == 0)),
    ("--broker :9092", {"broker": ":9092"}, lambda f: f.x.broker_port == 9092),
    ("--broker 10.77.0.1", {"broker": "10.77.0.1"}, lambda f: f.x.broker_ip == "10.77.0.1"),
    ("--broker 10.77.0.1:9094 --broker :9095", {"broker": ["10.77.0.1:9094", ":9095"]},
     lambda f: ((f.x.broker_ip == "10.77.0.1") & (f.x.broker_port == 9094)) | (f.x.broker_port == 9095)),
    ("--from +20s", {"start": "+20s"}, lambda f: f.since(20 * SECOND)),
    ("--to '+1500 ms'", {"end": "+1500 ms"}, lambda f: ~f.since(1500 * MS)),
    ("--from +5s --to +30s", {"start": "+5s", "end": "+30s"}, lambda f: f.since(5 * SECOND) & ~f.since(30 * SECOND)),
    ("--from +5s --api Produce --client 'svc-*' --broker :9092",
     {"start": "+5s", "api": "Produce", "client": "svc-*", "broker": ":9092"},
     lambda f: f.since(5 * SECOND) & (f.x.api_key == 0) & client(f, "svc-*") & (f.x.broker_port == 9092)),
    ("--topic 'small43.*' -f 'error or latency > 5 ms'", {"topic": "small43.*", "filter": "error or latency > 5 ms"},
     lambda f: f.on_topic(matches("small43.*")) & ((f.x.errors.map(len) > 0) | (f.x.total_ns > 5 * MS))),
]  # fmt: skip

#: Expressions, and the same as a mask.
EXPRESSIONS: dict[str, Mask] = {
    "api == Fetch": lambda f: f.x.api_key == 1,
    "api in (Produce, Metadata) and version != 7": lambda f: f.x.api_key.isin([0, 3]) & (f.x.api_version != 7),
    "api ~ 'Offset'": lambda f: texts(f.x.api_name, lambda name: "Offset" in name),
    "not api == Fetch": lambda f: f.x.api_key != 1,
    "version >= 9": lambda f: f.x.api_version >= 9,
    "client == lag-exporter".replace("lag-exporter", "'lag-exporter'"): lambda f: f.x.client_id == "lag-exporter",
    "client_id ~ 'console|perf|svc'": lambda f: f.x.client_id.str.contains("console|perf|svc", na=False),
    "client_id == null": lambda f: f.x.client_id.isna(),
    "client_software ~ 'librdkafka'": lambda f: f.x.client_software.str.contains("librdkafka", na=False),
    "broker == :9092 and client_port > 50000": lambda f: (f.x.broker_port == 9092) & (f.x.client_port > 50000),
    "topic == 'small43.orders' or topic == t1": lambda f: f.on_topic(matches("small43.orders", "t1")),
    "topic ~ '^(o|t)'": lambda f: f.on_topic(lambda name: name[0] in "ot"),
    "topic !~ '^(o|t)' and api == Fetch": lambda f: ~f.on_topic(lambda name: name[0] in "ot") & (f.x.api_key == 1),
    "partition == 2": lambda f: f.with_result(f.r.partition == 2),
    "partition != 0": lambda f: ~f.with_result(f.r.partition == 0),
    "partition > 1 and topic": lambda f: f.with_result(f.r.partition > 1) & f.on_topic(lambda _: True),
    "kind == group": lambda f: f.with_result(f.r.kind == "group"),
    "error": lambda f: f.x.errors.map(len) > 0,
    "error in (5,6)": lambda f: f.code(5, 6),
    "error != 6": lambda f: ~f.code(6),
    "error == NONE": lambda f: f.x.errors.map(len) == 0,
    "error ~ 'LEADER'": lambda f: f.code(5, 6, 74, 75),
    "error_code == 3 or error_code == 6": lambda f: f.with_result(f.r.error_code.isin([3, 6])),
    "latency > 50 ms": lambda f: f.x.total_ns > 50 * MS,
    "latency > 50ms or broker_time < 500us": lambda f: (f.x.total_ns > 50 * MS) | (f.x.broker_ns < 500_000),
    "hol_wait > 0": lambda f: f.x.hol_wait_ns > 0,
    "throttle_wait > 1ms or throttle > 0ms": lambda f: (f.x.throttle_wait_ns > MS) | (f.x.throttle_time_ms > 0),
    "outcome == unanswered or outcome == response_lost": lambda f: f.x.outcome.isin(["unanswered", "response_lost"]),
    "outcome != answered": lambda f: f.x.outcome != "answered",
    "long_poll": lambda f: f.x.long_poll,
    "acks == all and request_bytes > 1 kB": lambda f: (f.x.acks == -1) & (f.x.request_bytes > 1000),
    "acks in (none, leader)": lambda f: f.x.acks.isin([0, 1]),
    "max_wait_ms >= 500 and min_bytes == 1": lambda f: (f.x.max_wait_ms >= 500) & (f.x.min_bytes == 1),
    "size > 0.5 KiB": lambda f: (f.x.request_bytes > 512) | (f.x.response_bytes > 512),
    "response_bytes < 100 or response_bytes == null": lambda f: (f.x.response_bytes < 100) | f.x.response_bytes.isna(),
    "bytes > 100 or records > 1": lambda f: f.with_result((f.r.bytes > 100) | (f.r.records > 1)),
    "time >= +10s and time < +20 s": lambda f: f.since(10 * SECOND) & ~f.since(20 * SECOND),
    "request_packet_first > 300 and packet <= 2_000": lambda f: (
        (f.x.request_packet_first > 300) & ((f.x.request_packet_first <= 2000) | (f.x.response_packet_first <= 2000))
    ),
    "request_status != ok or response_status == malformed": lambda f: (
        (f.x.request_status.fillna("") != "ok") | (f.x.response_status == "malformed")
    ),
    "request.MaxWaitMs > 100ms": lambda f: f.x.max_wait_ms > 100,
    "(api == Fetch or api == Produce) and not (error or long_poll)": lambda f: (
        f.x.api_key.isin([0, 1]) & ~((f.x.errors.map(len) > 0) | f.x.long_poll)
    ),
}


CASES = [*OPTIONS, *(("-f " + shlex.quote(text), {"filter": text}, mask) for text, mask in EXPRESSIONS.items())]
SAMPLES = ("apache-4.3", "apache-0.8.2")
#: Larger captures, each for some of the cases.
LARGE = ("apache-0.8.2", "apache-0.10.2", "apache-2.8", "diverse")
_KEPT: dict[Path, Frames] = {}


def frames_of(path: Path) -> Frames:
    if path not in _KEPT:
        whole = analyze(path)
        _KEPT[path] = Frames(
            whole.exchanges.to_pandas(), whole.results.to_pandas(), whole.files.to_pandas()["first"].min()
        )
    return _KEPT[path]


def run(*arguments: str | Path) -> tuple[int, str, str]:
    """A command in this process: exit code, standard output, standard error."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([*map(str, arguments), "--no-progress"])
    return code, out.getvalue(), err.getvalue()


def counts_in(report: dict[str, Any]) -> tuple[int, int, int, int]:
    """Requests of the heading, of the tables by API and by client, and of the timeline."""
    reports = report["reports"]
    by_api = sum(row["count"] for row in reports["latency"])
    return (
        report["capture"]["requests"], by_api, sum(row["requests"] for row in reports["clients"]),
        sum(row["requests"] for row in reports["timeline"]),
    )  # fmt: skip


def counts_in_csv(folder: Path) -> tuple[int, int, int, int]:
    def total(name: str, column: str) -> int:
        with open(folder / f"{name}.csv", encoding="utf-8", newline="") as file:
            return sum(int(row[column]) for row in csv.DictReader(file))

    return (
        total("capture", "requests"),
        total("latency", "count"),
        total("clients", "requests"),
        total("timeline", "requests"),
    )


def agree(path: Path, options: str, arguments: dict[str, Any], mask: Mask, folder: Path) -> int:
    """Compare all ways to select; return how many exchanges are selected."""
    frames = frames_of(path)
    chosen = frames.x[mask(frames).fillna(False).astype(bool)]
    wanted = set(chosen.exchange)
    selected = analyze(path, **arguments)
    assert set(selected.exchanges["exchange"].to_pylist()) == wanted
    results = frames.r[frames.r.exchange.isin(wanted)]
    assert selected.results.num_rows == len(results)

    words = shlex.split(options)
    folder.mkdir(exist_ok=True)
    code, out, err = run("report", *words, "--json", "--csv", folder, "--parquet", folder, path)
    requests = int((chosen.outcome != "orphan_response").sum())
    assert ("no request matches" in err) == (not requests)
    if not requests:
        assert (code, out, list(folder.iterdir())) == (2, "", [])
        assert run("report", *words, path)[0] == 0
        return len(wanted)
    report = json.loads(out)
    assert code == 0
    written = pq.read_table(folder / "exchanges.parquet")
    assert written.equals(selected.exchanges)
    assert pq.read_table(folder / "results.parquet").equals(selected.results)
    assert counts_in(report) == counts_in_csv(folder) == (requests,) * 4
    codes = int((results.error_code != 0).sum())
    counted = sum(row["count"] for row in report["reports"]["error_totals"])
    names_result = "topic" in options or "partition" in options  # codes of other topics do not count
    assert counted <= codes if names_result else counted == codes

    code, out, err = run("show", *words, "--json", "--brief", path)
    shown = {int(message["exchange"]) for message in map(json.loads, out.splitlines()) if message["outcome"] != "token"}
    assert shown == wanted
    assert ("no message matches" in err) == (not wanted and not out)
    return len(wanted)


@pytest.mark.parametrize("capture", SAMPLES)
@pytest.mark.parametrize(("options", "arguments", "mask"), CASES, ids=[case[0] for case in CASES])
def test_all_ways_select_the_same(
    options: str, arguments: dict[str, Any], mask: Mask, capture: str, samples: Path, tmp_path: Path
) -> None:
    agree(samples / f"{capture}.pcap.zst", options, arguments, mask, tmp_path)


@pytest.mark.parametrize("number", range(len(LARGE)), ids=LARGE)
def test_they_do_on_large_captures(number: int, corpus: Path, tmp_path: Path) -> None:
    path = next((corpus / "captures").glob(f"{LARGE[number]}.pcap*"))
    sizes = [agree(path, *case, tmp_path / str(n)) for n, case in enumerate(CASES[number :: 2 * len(LARGE)])]
    assert sum(0 < size < len(frames_of(path).x) for size in sizes) > 2


def test_the_cases_are_not_empty(samples: Path) -> None:
    """Nearly all cases select something and leave something out, of one of the samples."""
    captures = [frames_of(samples / f"{name}.pcap.zst") for name in SAMPLES]

    def says_something(mask: Mask) -> bool:
        sizes = [(int(mask(frames).fillna(False).sum()), len(frames.x)) for frames in captures]
        return any(0 < size < whole for size, whole in sizes)

    silent = [options for options, _, mask in CASES if not says_something(mask)]
    assert len(silent) <= 3, silent


@pytest.fixture(autouse=True, scope="module")
def _forgotten() -> Iterator[None]:
    yield
    _KEPT.clear()
