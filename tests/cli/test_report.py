"""`kafkatap report` as a user meets it: inputs, filters, forms of output."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.support.captures import pcap_bytes, write_capture
from tests.support.tcp import encode
from tests.support.truth import read_truth
from tests.wire.kafkatalk import METADATA, KafkaTalk

from .running import KAFKATAP, ROOT, environment, kafkatap, on_terminal


@pytest.fixture(scope="module")
def truth(samples: Path) -> Any:
    """With the request that the end of the capture cuts, which Kafka's parsers do not see."""
    truth = read_truth(samples / "apache-4.3.exchanges.tsv")
    cut = truth.iloc[:1].assign(
        client_ip="10.77.0.10", client_port=54_904, broker_ip="10.77.0.1", broker_port=9092,
        client_id="greedy-producer", api_key=0, api_version=10, request_first=1_795_236_255_983_468,
        outcome="in_flight", errors="", throttle_time_ms=truth["throttle_time_ms"].min(),
    )  # fmt: skip
    return pd.concat([truth, cut], ignore_index=True)


def reported(*arguments: str | Path, **options: Any) -> dict[str, Any]:
    """The report as JSON; the run is to end well."""
    done = kafkatap("report", "--json", *arguments, **options)
    assert (done.code, done.err) == (0, "")
    result: dict[str, Any] = json.loads(done.out)
    return result


def requests_of(report: dict[str, Any]) -> int:
    return sum(row["count"] for row in report["reports"]["latency"])


def test_json_has_as_many_rows_as_asked_for_and_fits_its_schema() -> None:
    """With every section, with each --by, and with -n."""
    import jsonschema

    from kafkatap.reports.sections import latency, timeline_by

    schema = jsonschema.Draft202012Validator(json.loads((ROOT / "docs" / "report.schema.json").read_text()))
    for options in (
        ["--sections", "all"],
        ["-n", "1"],
        *(["--by", by] for by in dict.fromkeys((*latency.BY, *timeline_by.BY))),
    ):
        found = json.loads(kafkatap("report", "--json", *options, "samples/apache-4.3.pcap.zst").out)
        assert [error.message for error in schema.iter_errors(found)] == []
        rows = [len(table) for name, table in found["reports"].items() if name != "ledger"]
        assert (max(rows) == 1) == ("-n" in options)


def test_the_numbers_are_the_truth_s(sample: Path, truth: Any) -> None:
    report = reported(sample)
    assert requests_of(report) == report["capture"]["requests"] == len(truth)
    codes: Counter[int] = Counter()
    for text in truth["errors"]:
        for pair in filter(None, text.split(",")):
            code, _, count = pair.partition("x")
            codes[int(code)] += int(count)
    told: Counter[int] = Counter()
    for row in report["reports"]["errors"]:
        told[row["code"]] += row["count"]
    assert told == codes
    throttled = truth[truth["throttle_time_ms"] > 0]
    rows = report["reports"]["throttle"]
    assert sum(row["throttled"] for row in rows) == len(throttled)
    assert max(row["throttle_time_max_ms"] or 0 for row in rows) == throttled["throttle_time_ms"].max()
    assert sum(row["throttle_time_sum_ms"] for row in rows) == throttled["throttle_time_ms"].sum()
    assert any(row["long_poll"] for row in report["reports"]["latency"])


def test_a_capture_and_its_copy(captures: Path, tmp_path: Path) -> None:
    """What is captured twice is not retransmitted: nothing changes but one sentence and the rows that count it."""
    copy = tmp_path / "copy.pcap"
    copy.write_bytes((captures / "whole.pcap").read_bytes())
    one, both = reported(captures / "whole.pcap"), reported(captures / "whole.pcap", copy)
    packets = one["capture"]["packets"]
    assert [file["duplicates"] for file in both["reports"]["files"]] == [0, packets]
    [sentence] = [s for s in both["warnings"] if "captured twice" in s]
    assert sentence.startswith(f"{packets:,} packets were captured twice.")
    assert sentence.endswith(f" (copy.pcap: all of its {packets:,} packets).") or str(copy) in sentence
    assert [s for s in both["warnings"] if s != sentence] == one["warnings"]
    assert both["reports"]["clients"] == one["reports"]["clients"]


@pytest.mark.parametrize("packets", [4, 12, 13])
def test_the_complaint_agrees_with_the_heading(packets: int, tmp_path: Path) -> None:
    """On a capture that ends within the first request: whether its connection is called Kafka or not, both say the
    same."""
    talk = KafkaTalk(mss=60)
    talk.tcp.open()
    talk.request(METADATA, 4, 50, Topics=[{"Name": "orders-" * 8} for _ in range(9)])
    path = write_capture(tmp_path / "cut.pcap", pcap_bytes(encode(talk.segments[:packets])))
    done = kafkatap("report", path)
    [connections] = [line for line in done.out.splitlines() if line.startswith("connections")]
    if packets == 13:
        assert (done.code, done.err, connections) == (0, "", "connections 1 (1 Kafka)")
    elif packets > 3 and "1 Kafka" in connections:  # the request is cut
        assert (done.code, done.err) == (0, "")
    elif "Kafka" in connections:
        assert done.err == "kafkatap: 1 connection uses Kafka, but this input has no whole request\n"
    else:
        assert "no Kafka found" in done.err


def test_a_broker_that_is_none_is_refused(sample: Path) -> None:
    for arguments in (("--broker", "9092"), ("-f", "broker == 9092")):
        done = kafkatap("report", sample, *arguments)
        assert done.code == 2
        assert "a port alone is written :9092" in done.err


def test_all_ways_in_give_the_same(captures: Path, sample: Path) -> None:
    def of(*arguments: str | Path, stdin: bytes | None = None) -> Any:
        reports = reported(*arguments, stdin=stdin, cwd=captures)["reports"]
        # A pipe's size is unknown: it is not searched for what only small input is, such as causes of rebalances. Then
        # errors of members are not known to follow.
        left_out = ("not_checked", "group_rebalanced", "retried")
        for table, column in (("summary", "finding"), ("events", "event")):
            reports[table] = [row for row in reports[table] if row[column] not in left_out]
            reports[table] = [row for row in reports[table] if "REBALANCE_IN_PROGRESS" not in str(row)]
        return {k: v for k, v in reports.items() if k != "files"}

    wanted = of("whole.pcap")
    assert of(sample) == of("whole.pcap.gz") == of("two-members.pcap.gz") == wanted
    for name in ("whole.pcap", "whole.pcap.gz", str(sample)):
        assert of("-", stdin=(captures / name).read_bytes()) == wanted
    # Given in the wrong order, read in the order of their packets.
    assert of("halves-2.pcap", "halves-1.pcap") == wanted
    files = reported("halves-2.pcap", "halves-1.pcap", cwd=captures)["reports"]["files"]
    assert [(f["path"], f["first_packet"]) for f in files] == [("halves-1.pcap", 1), ("halves-2.pcap", 3001)]


def test_filters(sample: Path, truth: Any) -> None:
    start = int(truth["request_first"].min())
    began = (truth["request_first"] - start) / 1e6
    assert requests_of(reported(sample, "--from", "+10s", "--to", "+20s")) == ((began >= 10) & (began < 20)).sum()
    at = f"{start // 10**6 + 30}"
    assert requests_of(reported(sample, "--from", at)) == (truth["request_first"] >= int(at) * 10**6).sum()
    names = truth["client_id"].astype(str)
    assert requests_of(reported(sample, "--client", "svc-*")) == names.str.startswith("svc-").sum()
    assert requests_of(reported(sample, "--client", "lag-exporter", "--client", "ck-r1")) == (
        names.isin(["lag-exporter", "ck-r1"]).sum()
    )
    assert requests_of(reported(sample, "--client", "10.77.0.1")) == (truth["client_ip"] == "10.77.0.1").sum()
    assert requests_of(reported(sample, "--broker", "10.77.0.1:9094")) == (
        ((truth["broker_ip"] == "10.77.0.1") & (truth["broker_port"] == 9094)).sum()
    )
    assert requests_of(reported(sample, "--broker", ":9095")) == (truth["broker_port"] == 9095).sum()
    assert requests_of(reported(sample, "--api", "fetch,0")) == truth["api_key"].isin([0, 1]).sum()
    report = reported(sample, "--topic", "small43.clicks")
    assert "small43.clicks" in {row["name"] for row in report["reports"]["errors"]}
    assert report["capture"]["filters"] == "--topic small43.clicks"


def test_a_filter_that_lets_nothing_pass_is_told(sample: Path) -> None:
    done = kafkatap("report", "--client", "nobody", sample)
    assert (done.code, done.err) == (0, "kafkatap: no request matches --client nobody\n")
    assert "only        --client nobody" in done.out


@pytest.mark.parametrize("by", ["client", "broker", "version", "topic"])
def test_latency_by(sample: Path, by: str) -> None:
    report = reported(sample, "--by", by)
    rows = report["reports"]["latency"]
    column = {"client": "client_id", "version": "api_version"}.get(by, by)
    assert len({row[column] for row in rows}) > 3
    if by != "topic":
        assert requests_of(report) == report["capture"]["requests"]


def test_text(sample: Path) -> None:
    done = kafkatap("report", sample, "--utc")
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out
    assert "\ncaptured    2026-11-21 04:43:59.392 to 04:44:59.163 UTC (59.8 s)\n" in done.out
    for title in (
        "Latency by API",
        "Throttling by client and API",
        "Error codes",
        "Clients",
    ):
        assert f"\n{title}\n" in done.out
    assert "Fetch (long poll)" in done.out
    assert "confluent-kafka-python 2.16.1-rdkafka-2.16.0" in done.out  # nothing is cut: this is no terminal
    local = kafkatap("report", sample, "-n", "3", "--interval", "20s", TZ="Asia/Kolkata")
    assert "\ncaptured    2026-11-21 10:13:59.392 to 10:14:59.163 IST" in local.out
    assert "Timeline, 20 s each" in local.out
    assert "Timeline" not in done.out
    assert "more rows" not in kafkatap("report", sample, "-n", "all").out


def test_each_command_of_the_summary_shows_more(sample: Path) -> None:
    """As a user pastes it. The report begins with these lines, and has no more than eight."""
    *lines, last = kafkatap("report", sample, "--utc").out.split("\n\n")[0].splitlines()
    lines = [f"{text}{command}" for text, command in zip(lines[::2], lines[1::2], strict=True)]
    found = reported(sample, "--utc")["reports"]["summary"]
    explained = {row["cause"] for row in found if row["severity"] != "note"}
    rows = [row for row in found if row["cause"] is None]
    rows = [row for row in rows if row["severity"] != "note" or row["finding"] in explained]  # not those at the end
    assert len(lines) <= 8
    assert last.startswith(f"… and {len(rows) - len(lines)} more finding")
    assert {"slow_broker", "throttled", "errors"} <= {row["finding"] for row in rows}
    by_text = {row["text"]: row for row in rows}
    rows = [next(row for text, row in by_text.items() if text in line) for line in lines]
    for line, row in zip(lines, rows, strict=True):
        pasted = line[line.index("kafkatap ") :]
        assert pasted == row["command"].replace("CAPTURE", str(sample))
        name, *arguments = shlex.split(pasted)
        done = kafkatap(*arguments)
        assert (name, done.code) == ("kafkatap", 0)
        assert done.err == ""
        assert len(done.out.splitlines()) > 1


def test_the_ledger(sample: Path) -> None:
    assert "Ledger" not in kafkatap("report", sample).out
    assert (
        kafkatap("report", sample, "--sections", "latency").out.splitlines()[-1].startswith("Ledger: 5,822 packets (")
    )
    whole = kafkatap("report", sample, "--ledger").out
    assert "\nLedger\n" in whole
    assert "no reply expected (acks=0)" in whole


def test_sort(sample: Path) -> None:
    plain, by_p99 = reported(sample), reported(sample, "--sort", "total_p99")
    values = [row["total_p99_ns"] for row in by_p99["reports"]["latency"]]
    known = [value for value in values if value is not None]
    assert known == sorted(known, reverse=True)
    assert values[len(known) :] == [None] * (len(values) - len(known))
    assert by_p99["reports"]["summary"] == plain["reports"]["summary"]
    refused = kafkatap("report", sample, "--sort", "p99")
    assert (refused.code, refused.out) == (2, "")
    assert "kafkatap: no table has a column 'p99'; " in refused.err


def test_width(sample: Path) -> None:
    """Without a terminal, every column with values is shown, and no text is cut."""
    whole = kafkatap("report", sample, "-n", "all").out
    assert "…" not in whole.replace("… and ", "")
    head = next(line for line in whole.splitlines() if line.startswith("API  "))
    assert head.split().count("p99.9") == 2
    narrow = kafkatap("report", sample, "--width", "100").out
    # Commands are whole, however long the capture's path is.
    tables = [line for line in narrow.split("\n\n", 2)[2].splitlines() if not line.lstrip().startswith("kafkatap ")]
    assert max(map(len, tables)) <= 100
    assert kafkatap("report", sample, "--width", "7").code == 2
    code, shown = on_terminal("report", sample, "--no-progress", "--color", "never", columns=100)
    assert code == 0
    assert shown == narrow


def test_colors(sample: Path) -> None:
    assert "\x1b[" in kafkatap("report", sample, "--color", "always").out
    assert "\x1b[" not in kafkatap("report", sample, "--color", "never").out
    plain = kafkatap("report", sample, "--color", "always", NO_COLOR="1").out
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", plain)


def test_files_of_every_kind(sample: Path, tmp_path: Path, truth: Any) -> None:
    done = kafkatap("report", sample, "--csv", "c", "--plots", "p/q", "--parquet", "t", cwd=tmp_path)
    assert done.code == 0
    assert [line.rpartition(" ")[2] for line in done.err.splitlines()] == ["c", "p/q", "t"]
    with open(tmp_path / "c" / "latency.csv", encoding="utf-8", newline="") as file:
        assert sum(int(row["count"]) for row in csv.DictReader(file)) == len(truth)
    plots = sorted(p.name for p in (tmp_path / "p" / "q").iterdir())
    assert len(plots) == 10
    for name in plots:
        data = (tmp_path / "p" / "q" / name).read_bytes()
        assert data.startswith(b"\x89PNG") if name.endswith(".png") else b"<svg" in data[:1000]
    tables = {p.stem: pd.read_parquet(p) for p in (tmp_path / "t").iterdir()}
    assert sorted(tables) == ["connections", "exchanges", "files", "ledger", "results"]
    exchanges = tables["exchanges"]
    assert len(exchanges) == len(truth)
    assert exchanges["exchange"].is_unique
    assert set(tables["results"]["exchange"]) <= set(exchanges["exchange"])
    assert exchanges["throttle_time_ms"].max() == truth["throttle_time_ms"].max()


def test_pipes_that_end_early(sample: Path, tmp_path: Path) -> None:
    command = f"{' '.join(KAFKATAP)} report {sample} --csv {tmp_path}/c | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, env=environment(), timeout=60, check=True
    )
    assert done.stdout.splitlines()[1] == "0"
    assert "Traceback" not in done.stderr
    assert (tmp_path / "c" / "ledger.csv").exists()
    gone = subprocess.run(
        ["bash", "-c", f"{' '.join(KAFKATAP)} completion bash | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, cwd=ROOT, env=environment(), timeout=60, check=True,
    )  # fmt: skip
    assert (gone.stdout, gone.stderr) == ("0\n", "")


def test_alone_it_shows_its_help() -> None:
    done = kafkatap()
    assert done.code == 2
    assert done.out == kafkatap("--help").out
    assert "exit codes" in done.out
    assert kafkatap("--version").out.startswith("kafkatap ")


def test_closed_outputs_and_empty_names(sample: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(KAFKATAP)} report {sample} --csv {tmp_path}/c >&- 2>&-"],
        capture_output=True, cwd=ROOT, env=environment(), timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert (tmp_path / "c" / "latency.csv").exists()
    refused = kafkatap("report", sample, "--parquet", "")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "kafkatap: --parquet needs the name of a directory\n"
