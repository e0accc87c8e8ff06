"""`--filter`: what a user meets, and that the counts are those of the tables."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kafkatap import analyze
from kafkatap.engine.engine import engine_for
from kafkatap.engine.selection import Selection
from kafkatap.reports.expressions.names import ALIASES, NAMES
from kafkatap.reports.tables import TABLES
from kafkatap.run import Run

from .running import ROOT, kafkatap

DOCUMENT = (ROOT / "docs" / "filters.md").read_text(encoding="utf-8")


def reported(*arguments: str | Path) -> dict[str, Any]:
    done = kafkatap("report", "--json", *arguments)
    assert (done.code, done.err) == (0, "")
    result: dict[str, Any] = json.loads(done.out)
    return result


def requests_of(report: dict[str, Any]) -> int:
    return sum(row["count"] for row in report["reports"]["latency"])


def found_in(path: Path, text: str) -> set[int]:
    """Keys of the exchanges that match."""
    selection = Selection.of(filter=text)
    engine = engine_for(selection)
    batches = selection.apply(Run([str(path)], engine).batches(), engine)
    return {key for batch in batches for key in batch.exchanges["key"].tolist()}


def test_a_report_of_what_matches(sample: Path) -> None:
    whole, part = reported(sample), reported(sample, "-f", "api == Produce")
    for name in ("latency", "throttle"):
        wanted = [row for row in whole["reports"][name] if row["api"].startswith("Produce")]
        assert part["reports"][name] == wanted
    assert requests_of(part) == part["capture"]["requests"]
    assert part["reports"]["ledger"] == whole["reports"]["ledger"]


def test_what_was_asked_is_told(sample: Path) -> None:
    done = kafkatap("report", "--filter", "api == Fetch and latency > 1ms", "--client", "*", sample)
    assert done.code == 0
    assert "--filter 'api == Fetch and latency > 1ms'" in " ".join(done.out.split())
    nothing = kafkatap("report", "--filter", "latency > 1h", sample)
    assert nothing.err == "kafkatap: no request matches --filter 'latency > 1h'\n"


def test_it_holds_together_with_the_other_options(sample: Path) -> None:
    both = reported(sample, "-f", "version > 12", "--api", "Produce,Metadata")
    assert requests_of(both) == len(found_in(sample, "version > 12 and api in (Produce, Metadata)"))
    assert 0 < requests_of(both) < requests_of(reported(sample, "--api", "Produce,Metadata"))


def test_errors_and_topics_are_those_of_whole_exchanges(sample: Path) -> None:
    report = reported(sample, "-f", "error == NOT_LEADER_OR_FOLLOWER or error == UNKNOWN_TOPIC_OR_PARTITION")
    codes = {row["code"] for row in report["reports"]["errors"]}
    results = analyze(sample).results.to_pandas()
    failed = results.exchange[results.error_code.isin((3, 6))]
    assert codes == set(results.error_code[results.exchange.isin(failed)]) - {0} > {3, 6}
    topics = {row["topic"] for row in reported(sample, "--by", "topic")["reports"]["latency"]} - {None}
    topic = sorted(topics)[0]
    selections = (["-f", f"topic == '{topic}'"], ["--topic", topic])
    one, other = (reported(sample, "--by", "topic", *selection)["reports"] for selection in selections)
    assert {name: rows for name, rows in one.items() if name != "summary"} == {
        name: rows
        for name, rows in other.items()
        if name != "summary"  # its commands repeat the selection
    }
    assert topic in {row["topic"] for row in one["latency"]}


def test_parquet_holds_what_matches(sample: Path, tmp_path: Path) -> None:
    text = "api == Fetch and topic"
    done = kafkatap("report", "-f", text, "--parquet", tmp_path, "--json", sample)
    assert done.code == 0
    wanted = found_in(sample, text)
    exchanges = pq.read_table(tmp_path / "exchanges.parquet")
    assert set(exchanges["exchange"].to_pylist()) == wanted
    assert set(pq.read_table(tmp_path / "results.parquet")["exchange"].to_pylist()) <= wanted


def test_the_library_filters_too(sample: Path) -> None:
    whole, part = analyze(sample), analyze(sample, filter="api == Produce and error == NONE")
    wanted = [row for row in whole.exchanges.to_pylist() if row["api_name"] == "Produce" and not row["errors"]]
    assert part.exchanges.to_pylist() == wanted
    numbers = {row["exchange"] for row in wanted}
    assert part.results.to_pylist() == [row for row in whole.results.to_pylist() if row["exchange"] in numbers]
    assert part.records.to_pylist() == [row for row in whole.records.to_pylist() if row["exchange"] in numbers]
    assert part.connections.equals(whole.connections)
    shown = whole.report(filter="api == Produce and error == NONE")
    assert shown.tables[0].rows == part.report().tables[0].rows
    with pytest.raises(ValueError, match="did you mean latency"):
        analyze(sample, filter="latncy > 1ms")


@pytest.mark.parametrize("command", ["report", "show", "records"])
def test_what_is_wrong_is_told_before_anything_is_read(command: str, sample: Path) -> None:
    done = kafkatap(command, "-f", "api == Fetch and latncy > 50ms", sample)
    assert (done.code, done.out) == (2, "")
    lines = done.err.splitlines()
    assert lines[0] == "kafkatap: there is no name 'latncy'; did you mean latency?"
    assert lines[1].removeprefix("kafkatap: ") == "  api == Fetch and latncy > 50ms"
    assert lines[2].removeprefix("kafkatap: ") == "                   ^^^^^^"


def test_help_needs_no_capture() -> None:
    done = kafkatap("report", "--filter", "help")
    assert (done.code, done.err) == (0, "")
    assert all(name in done.out for name in NAMES)


def test_the_document_names_what_is_no_column_of_that_name() -> None:
    found = re.findall(r"^\| (`[\w.]+`(?:, `[\w.]+`)*) \| (\w+) \| (.+?) \| (.*?) ?\|$", DOCUMENT, re.MULTILINE)
    rows = [(name, *row) for names, *row in found for name in re.findall(r"`([\w.]+)`", names)]
    rows = [row for row in rows if row[0] != "record.header.NAME"]
    assert {(name, kind) for name, kind, _, _ in rows} <= {(n.name, n.kind) for n in NAMES.values()}
    columns = {column.name for table in ("exchanges", "results") for column in TABLES[table]}
    others = set(NAMES) - {name for name, *_ in rows}
    assert others <= columns - set(ALIASES.values())
    for name, _, text, also in rows:
        assert text.startswith(NAMES[name].help)
        assert set(re.findall(r"`(\w+)`", also)) == {alias for alias, of in ALIASES.items() if of == name}


EXAMPLES = [
    line for block in re.findall(r"^```filter\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]  # fmt: skip


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_document_s_examples_hold_for_what_they_say(text: str, sample: Path) -> None:
    everything = found_in(sample, "exchange > 0")
    matching = found_in(sample, text)
    assert matching < everything
    assert found_in(sample, f"not ({text})") == everything - matching


def test_the_document_s_commands_run() -> None:
    commands = re.findall(r"^(?:\$ )?(kafkatap .*)$", "\n".join(
        re.findall(r"^```(?:console)?\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)), re.MULTILINE)  # fmt: skip
    commands = [c for c in commands if not c.startswith("kafkatap:")]
    assert len(commands) == 4
    for command in commands:
        done = kafkatap(*shlex.split(command)[1:])
        if "latncy" in command:
            assert done.err in DOCUMENT
            assert done.code == 2
        else:
            assert done.code == 0, done.err


#: Expressions, and the same said of a frame of the table exchanges.
CORPUS: dict[str, Callable[[Any], Any]] = {
    "api == Fetch and latency > 50ms": lambda x: (x.api_name == "Fetch") & (x.total_ns > 50_000_000),
    "api in (Produce, Metadata) and not version == 7": lambda x: x.api_key.isin([0, 3]) & (x.api_version != 7),
    "error": lambda x: x.errors.map(len) > 0,
    "error == 6 or error == 3": lambda x: x.errors.map(lambda e: any(c["code"] in (3, 6) for c in e)),
    "error != 6": lambda x: ~x.errors.map(lambda e: any(c["code"] == 6 for c in e)),
    "outcome != answered": lambda x: x.outcome != "answered",
    "broker_time >= 1ms and hol_wait > 0": lambda x: (x.broker_ns >= 1_000_000) & (x.hol_wait_ns > 0),
    "throttle > 0ms": lambda x: x.throttle_time_ms > 0,
    "client_id ~ 'console|perf'": lambda x: x.client_id.str.contains("console|perf", na=False),
    "topic ~ '^o'": lambda x: x.topics.map(lambda t: any(each.startswith("o") for each in t)),
    "acks == all and request_bytes > 1kB": lambda x: (x.acks == -1) & (x.request_bytes > 1000),
    "long_poll": lambda x: x.long_poll,
    "response_bytes < 100 or response_bytes == null": lambda x: (x.response_bytes < 100) | x.response_bytes.isna(),
    "request_packet_first > 1000 and request_packet_first <= 2_000":
        lambda x: (x.request_packet_first > 1000) & (x.request_packet_first <= 2000),
}  # fmt: skip


@pytest.mark.parametrize("capture", ["apache-4.3-broker1", "apache-0.10.2"])
def test_counts_are_those_of_the_table(corpus: Path, capture: str) -> None:
    path = corpus / "captures" / f"{capture}.pcap.zst"
    frame = analyze(path).exchanges.to_pandas()
    sizes: Counter[str] = Counter()
    for text, said in CORPUS.items():
        wanted = set(frame.exchange[said(frame).fillna(False).astype(bool)])
        assert found_in(path, text) == wanted, text
        sizes[text] = len(wanted)
    assert sum(0 < size < len(frame) for size in sizes.values()) > 9


@pytest.mark.parametrize("capture", ["apache-4.3-broker1", "apache-0.10.2"])
@pytest.mark.parametrize("api", ["Fetch", "Produce"])
def test_a_report_of_one_api_is_a_part_of_the_whole_report(corpus: Path, capture: str, api: str) -> None:
    """Though the bodies of the others are not decoded."""
    analysis = analyze(corpus / "captures" / f"{capture}.pcap.zst")
    whole, part = ({t.name: t for t in r.tables} for r in (analysis.report(), analysis.report(filter=f"api == {api}")))
    for name in ("latency", "throttle", "errors"):
        place = next(i for i, c in enumerate(whole[name].columns) if c.name == "api")
        wanted = [row for row in whole[name].rows if str(row[place]).split(" ")[0] == api]
        assert part[name].rows == wanted
