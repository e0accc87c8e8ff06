"""`kafkatap show`: every message that the truth has, once, in order; and what is asked for of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkatap import analyze
from kafkatap import run as run_module
from kafkatap.__main__ import main
from kafkatap.captures.capture_reader import CaptureReader
from kafkatap.dissector.kafka.error_codes import error_name
from tests.support.captures import pcap_bytes
from tests.support.tcp import encode
from tests.support.truth import compare_exchanges, read_truth, seen_by_parsers
from tests.wire.kafkatalk import FETCH, METADATA, KafkaTalk

from .running import KAFKATAP, ROOT, environment, kafkatap, on_terminal, without_compiling

SAMPLES = ROOT / "samples"
SAMPLE = SAMPLES / "apache-4.3.pcap.zst"
SMALL = SAMPLES / "live-4.3.pcap.zst"
WHOLE = ("apache-4.3.pcap.zst", "apache-2.8.pcap.zst", "apache-0.10.2.pcap.zst", "apache-0.8.2.pcap.zst")
LINE = re.compile(r" *(\d+) (\d\d:\d\d:\d\d\.\d{6}) (\S+) +([→←]) (\S+) +(\w+) v(\d+) +#(-?\d+) ")

Object = dict[str, Any]
Run = Callable[..., tuple[int, str, str]]


@cache
def brief(path: Path) -> list[Object]:
    """The messages of a capture as JSON without bodies; a process of its own, once for each capture."""
    done = kafkatap("show", "--json", "--brief", path)
    assert (done.code, done.err) == (0, "")
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `kafkatap show` within this process: exit code, standard output, standard error."""

    def shown(*arguments: str | Path) -> tuple[int, str, str]:
        code = main(["show", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, without_compiling(err)

    return shown


@pytest.fixture
def ids(run: Run) -> Callable[..., list[tuple[int, str]]]:
    """Which messages options leave: (exchange, direction) in the order shown."""

    def found(*arguments: str | Path) -> list[tuple[int, str]]:
        code, out, err = run("--json", "--brief", *arguments)
        assert code == 0
        assert not err or "no message matches" in err or err.endswith(" messages shown\n")
        return [(m["exchange"], m["direction"]) for m in map(json.loads, out.splitlines())]

    return found


def wanted(path: Path, test: Callable[[Object], Any]) -> list[tuple[int, str]]:
    """Both messages of each exchange one of whose messages passes the test."""
    chosen = {m["exchange"] for m in brief(path) if test(m)}
    return [(m["exchange"], m["direction"]) for m in brief(path) if m["exchange"] in chosen]


def nanoseconds(message: Object) -> int:
    seconds, fraction = message["time"].rstrip("Z").split(".")
    return int(datetime.fromisoformat(seconds + "+00:00").timestamp()) * 10**9 + int(fraction)


def table_of(messages: list[Object]) -> pa.Table:
    """What the objects say, as an `exchanges` table for the comparison with a truth file."""
    exchanges: dict[int, dict[str, Any]] = {}
    for m in messages:
        row = exchanges.setdefault(m["exchange"], {"outcome": m["outcome"], "errors": [], "throttle_time_ms": None})
        side = m["direction"]
        assert f"{side}_bytes" not in row, "two messages of one direction"
        assert row["outcome"] == m["outcome"]
        row.update({f"{side}_first": nanoseconds(m), f"{side}_last": nanoseconds(m), f"{side}_bytes": m["bytes"]})
        for end in ("client", "broker"):
            address, _, port = m[end].rpartition(":")
            row.update({f"{end}_ip": address, f"{end}_port": int(port)})
        row.update({name: m[name] for name in ("client_id", "api_key", "api_version", "correlation_id")})
        if side == "response":
            row["errors"] = [{"code": e["code"], "count": e["count"]} for e in m["errors"]]
            row["throttle_time_ms"] = m["throttle_time_ms"]
    times = [f"{side}_{end}" for side in ("request", "response") for end in ("first", "last")]
    columns: dict[str, Any] = {
        name: pa.array([row.get(name) for row in exchanges.values()])
        for name in ("outcome", "client_id", "client_ip", "broker_ip", "client_port", "broker_port", "api_key",
                     "api_version", "correlation_id", "request_bytes", "response_bytes", "throttle_time_ms")
    }  # fmt: skip
    for name in times:
        columns[name] = pa.array([row.get(name) for row in exchanges.values()], pa.timestamp("ns", "UTC"))
    errors = pa.list_(pa.struct([("code", pa.int16()), ("count", pa.int32())]))
    columns["errors"] = pa.array([row["errors"] for row in exchanges.values()], errors)
    return pa.table(columns)


COMPARED = (
    "request_first", "response_first", "request_bytes", "response_bytes", "outcome", "client_id", "throttle_time_ms",
    "errors",
)  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_json_has_every_message_of_the_truth_once(name: str) -> None:
    messages = [m for m in brief(SAMPLES / name) if m["outcome"] not in ("orphan_response", "token")]
    table = analyze(SAMPLES / name).exchanges
    whole = set(seen_by_parsers(table)["exchange"].to_pylist())
    messages = [m for m in messages if int(m["exchange"]) in whole]
    truth = read_truth(SAMPLES / f"{name.partition('.pcap')[0]}.exchanges.tsv")
    assert compare_exchanges(table_of(messages), truth, columns=COMPARED) == []
    counts = Counter(m["direction"] for m in messages)
    assert counts == {"request": len(truth), "response": int((truth["outcome"] == "answered").sum())}
    times = [nanoseconds(m) for m in brief(SAMPLES / name)]
    assert times == sorted(times)
    for m in messages:
        assert all(e["name"] == error_name(e["code"]) for e in m["errors"])


def test_lines_say_what_json_says(samples: Path) -> None:
    done = kafkatap("show", "--utc", SAMPLE)
    assert done.code == 0
    day, *lines = done.out.splitlines()
    assert day == "2026-11-21 UTC"
    assert len(lines) == len(brief(SAMPLE))
    places = set()
    for line, m in zip(lines, brief(SAMPLE), strict=True):
        found = LINE.match(line)
        assert found, line
        arrow = "←" if m["direction"] == "response" else "→"
        assert found.groups() == (
            str(m["packet_first"]), m["time"][11:26], m["client"], arrow, m["broker"], m["api_name"],
            str(m["api_version"]), str(m["correlation_id"]),
        )  # fmt: skip
        said = line[found.end() :]
        for e in m["errors"]:
            assert e["name"] + (f" x {e['count']}" if e["count"] > 1 else "") in said
        if m["status"] == "ok" and not m["errors"]:
            assert not re.search(r"  [A-Z]+_[A-Z_]+(  |$)", said.partition("=")[0])
        for topic in m["topics"][:3]:  # of four places; a group may be the first
            assert (topic["topic"] or topic["topic_id"])[:39] in said
        places.add(line.index("#"))
    # Columns only ever move to the right, and soon no more.
    late = {line.index(arrow) for line in lines[200:] for arrow in "→←" if arrow in line[:60]}
    assert len(late) == 1
    assert len(places) < 12


def test_the_first_lines_of_a_sample() -> None:
    done = kafkatap("show", "--utc", "-n", "60", SMALL)
    assert (done.code, done.err) == (0, "kafkatap: 60 of 926 messages shown\n")
    kept = SAMPLES / "live-4.3.show.txt"
    if os.environ.get("KAFKATAP_UPDATE"):
        kept.write_text(done.out)
    assert done.out == kept.read_text()


def test_local_time_and_its_zone() -> None:
    done = kafkatap("show", "-n", "1", SMALL, TZ="Asia/Tokyo")
    day, line = done.out.splitlines()
    assert day == "2026-11-21 JST"
    assert line.split()[1] == "17:32:47.741406"


# One pass


def without_names(messages: list[Object]) -> Counter[str]:
    """As a set: what one pass may not know yet is left out."""
    found = []
    for m in messages:
        kept = {k: v for k, v in m.items() if k not in ("exchange", "connection", "outcome")}
        found.append(json.dumps({**kept, "topics": [{**t, "topic": None} for t in kept["topics"]]}))
    return Counter(found)


def test_one_pass_gives_the_same_messages(run: Run) -> None:
    code, out, err = run("--stream", "--json", "--brief", SAMPLE)
    assert (code, err) == (0, "")
    streamed = [json.loads(line) for line in out.splitlines()]
    assert without_names(streamed) == without_names(brief(SAMPLE))
    piped = kafkatap("show", "--json", "--brief", "-", stdin=SAMPLE.read_bytes())
    assert (piped.code, piped.out, piped.err) == (0, out, "")
    for options in (["-f", "error"], ["--api", "Produce", "--only", "responses"], ["--client", "aio-*"],
                    ["--from", "+2s", "--to", "+4s"]):  # fmt: skip
        streamed = [json.loads(line) for line in run("--stream", "--json", "--brief", *options, SAMPLE)[1].splitlines()]
        twice = [json.loads(line) for line in run("--json", "--brief", *options, SAMPLE)[1].splitlines()]
        assert without_names(streamed) == without_names(twice)
        assert len(twice) > 10


@pytest.mark.parametrize("way", [[], ["--stream"]])
def test_block_sizes_do_not_matter(run: Run, monkeypatch: pytest.MonkeyPatch, way: list[str]) -> None:
    whole = run("--json", "--brief", *way, SMALL)
    monkeypatch.setattr(run_module, "CaptureReader", lambda path, size: CaptureReader(path, 40_000))
    parts = run("--json", "--brief", *way, SMALL)
    assert parts[0] == whole[0] == 0
    assert without_names(list(map(json.loads, parts[1].splitlines()))) == without_names(
        list(map(json.loads, whole[1].splitlines()))
    )
    if not way:
        assert parts == whole


# What is asked for


def test_options_choose_messages(ids: Callable[..., list[tuple[int, str]]]) -> None:
    everything = [(m["exchange"], m["direction"]) for m in brief(SAMPLE)]
    assert ids(SAMPLE, "-n", "7") == everything[:7]
    assert ids(SAMPLE, "--tail", "7") == everything[-7:]
    assert ids(SAMPLE, "-n", "100", "--tail", "3") == everything[97:100]
    assert ids(SAMPLE, "--only", "requests") == [i for i in everything if i[1] == "request"]
    assert ids(SAMPLE, "--only", "responses", "-n", "3") == [i for i in everything if i[1] == "response"][:3]
    produce = wanted(SAMPLE, lambda m: m["api_name"] == "Produce")
    for options in (["--api", "Produce"], ["--api", "0"], ["-f", "api == Produce"]):
        assert ids(SAMPLE, *options) == produce
    both = wanted(SAMPLE, lambda m: m["api_key"] in (0, 3))
    assert ids(SAMPLE, "--api", "Produce,Metadata") == ids(SAMPLE, "--api", "0", "--api", "3") == both
    client = wanted(SAMPLE, lambda m: (m["client_id"] or "").startswith("aio-"))
    assert ids(SAMPLE, "--client", "aio-*") == client
    assert ids(SAMPLE, "--client", "10.77.0.1") == wanted(SAMPLE, lambda m: m["client"].startswith("10.77.0.1:"))
    assert ids(SAMPLE, "--broker", ":9094") == wanted(SAMPLE, lambda m: m["broker"].endswith(":9094"))
    assert ids(SAMPLE, "--broker", "10.77.0.2:9092") == wanted(SAMPLE, lambda m: m["broker"] == "10.77.0.2:9092")
    errors = wanted(SAMPLE, lambda m: m["errors"])
    assert ids(SAMPLE, "-f", "error") == errors
    together = ids(SAMPLE, "--api", "Produce", "--client", "aio-*", "-f", "broker_time > 1ms", "--only", "responses")
    slow = {m["exchange"] for m in brief(SAMPLE) if m.get("broker_ns", 0) > 10**6}
    assert together == [i for i in produce if i[1] == "response" and i in client and i[0] in slow]
    assert 0 < len(together) < len(client)


def test_topics_choose_messages(ids: Callable[..., list[tuple[int, str]]]) -> None:
    names = Counter(t["topic"] for m in brief(SAMPLE) for t in m["topics"])
    name = names.most_common(1)[0][0]
    found = ids(SAMPLE, "--topic", name)
    about = wanted(SAMPLE, lambda m: any(t["topic"] == name for t in m["topics"]))
    assert set(found) == set(about)
    assert ids(SAMPLE, "--topic", name[:4] + "*", "--topic", name) == ids(SAMPLE, "--topic", name[:4] + "*")


def test_a_time_window_selects_exchanges_that_begin_in_it(ids: Callable[..., list[tuple[int, str]]]) -> None:
    messages = brief(SAMPLE)
    first = nanoseconds(messages[0])
    begun: dict[int, int] = {}
    for m in messages:
        begun.setdefault(m["exchange"], nanoseconds(m) - first)
    span = [(m["exchange"], m["direction"]) for m in messages if 2 * 10**9 <= begun[m["exchange"]] < 3 * 10**9]
    assert span
    assert ids(SAMPLE, "--from", "+2s", "--to", "+3s") == span
    start = first // 1000 + 2_000_000
    absolute = f"{start // 10**6}.{start % 10**6:06d}"
    assert ids(SAMPLE, "--from", absolute, "--to", "+3s") == span
    assert (
        ids(SAMPLE, "--from", "+2s", "--to", "+3s", "-n", "2", "--only", "responses")
        == [i for i in span if i[1] == "response"][:2]
    )


def test_nothing_left(run: Run) -> None:
    for way in ([], ["--stream"]):
        code, out, err = run("-f", "latency > 1h", "--api", "Fetch", *way, SMALL)
        assert (code, out) == (0, "")
        assert err == "kafkatap: no message matches --api Fetch --filter 'latency > 1h'\n"
        code, out, err = run("--tail", "0", *way, SMALL)
        assert (code, out, err) == (0, "", "")


def test_wrong_options(run: Run) -> None:
    code, out, err = run("-f", "api == Fetch and latncy > 5ms", SMALL)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "kafkatap: there is no name 'latncy'; did you mean latency?",
        "kafkatap:   api == Fetch and latncy > 5ms",
        "kafkatap:                    ^^^^^^",
    ]
    for options, said in (
        (["--api", "Fetchh"], "no API is called 'Fetchh'; did you mean Fetch"),
        (["--topic", "[", "-f", "api =="], "api =="),
    ):
        code, out, err = run(*options, SMALL)
        assert (code, out) == (2, "")
        assert said in err
    for wrong in (["--only", "both"], ["-n", "-1"], ["-n", "x"], ["--from", "soon"], ["--broker", ""]):
        with pytest.raises(SystemExit) as ended:
            run(*wrong, SMALL)
        assert ended.value.code == 2


# Names


def test_a_topic_named_at_the_end_is_named_everywhere(run: Run, tmp_path: Path) -> None:
    topic_id = bytes(range(16))
    talk = KafkaTalk()
    talk.tcp.open()
    for n in range(3):
        partitions = [{"Partition": 0, "FetchOffset": 5}]
        asked = talk.request(FETCH, 13, n, Topics=[{"TopicId": topic_id, "Partitions": partitions}])
        talk.respond(asked, Responses=[{"TopicId": topic_id, "Partitions": [{"PartitionIndex": 0}]}])
    asked = talk.request(METADATA, 12, 3)
    brokers = [{"NodeId": 7, "Host": "kafka-7.example", "Port": 9093}]
    led = [{"PartitionIndex": 0, "LeaderId": 7, "ReplicaNodes": [7, 8]}]
    talk.respond(asked, Brokers=brokers, Topics=[{"Name": "orders", "TopicId": topic_id, "Partitions": led}])
    (tmp_path / "a.pcap").write_bytes(pcap_bytes(encode(talk.segments)))
    code, out, _ = run(tmp_path / "a.pcap")
    assert code == 0
    assert out.count("orders[0]") == 7
    code, out, _ = run("--tree", tmp_path / "a.pcap")
    assert re.search(r"LeaderId: 7 \(kafka-7\.example:9093\)", out)
    assert re.search(r"ReplicaNodes: \[7 \(kafka-7\.example:9093\), 8\]", out)
    assert out.count("TopicId: AAECAwQFBgcICQoLDA0ODw (orders)") == 7
    code, out, _ = run("--json", "--topic", "orders", tmp_path / "a.pcap")
    first = json.loads(out.splitlines()[0])
    assert first["topics"] == [{"topic": "orders", "topic_id": "AAECAwQFBgcICQoLDA0ODw", "partitions": [0]}]
    assert first["body"]["Topics"][0]["TopicId_name"] == "orders"
    code, out, _ = run("--stream", tmp_path / "a.pcap")
    assert code == 0
    assert len(out.splitlines()) == 9


def test_long_arrays_are_cut(run: Run, tmp_path: Path) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    talk.respond(talk.request(15, 0, 1, Groups=[f"group-{n}" for n in range(300)]))
    talk.respond(talk.request(METADATA, 1, 2, Topics=[{"Name": f"topic-{n}"} for n in range(300)]))
    (tmp_path / "a.pcap").write_bytes(pcap_bytes(encode(talk.segments)))
    code, out, _ = run(tmp_path / "a.pcap")
    assert code == 0
    assert "  Groups=group-0,group-1,group-2,group-3 and 296 more\n" in out
    assert "  topic-0  topic-1  topic-2  topic-3  and 296 more\n" in out


# Whole messages


def frames_of(path: Path) -> list[bytes]:
    """The frames of a capture of one message a segment, in order of time."""
    from kafkatap.engine.read_options import AS_USUAL
    from kafkatap.selected_messages.message_collector import MessageCollector
    from kafkatap.selected_messages.message_index import index_messages
    from kafkatap.selected_messages.messages import read_messages

    index = index_messages([str(path)])
    parts = read_messages(index, AS_USUAL, MessageCollector(index.ids, True, None))
    return [message.frame for part in parts for message in part.each()]


TREE_LINE = re.compile(r"  +(\d+) +(\d+)  ( *)\S")


def test_the_whole_of_each_message(run: Run) -> None:
    code, out, err = run("--tree", "--hex", "--utc", SMALL)
    assert (code, err) == (0, "")
    frames = frames_of(SMALL)
    assert len(frames) == len(brief(SMALL))
    blocks = out.split("\n", 1)[1].split("\n\n")[:-1]
    for block, frame, m in zip(blocks, frames, brief(SMALL), strict=True):
        assert len(frame) == m["bytes"] + 4
        head, *lines = block.split("\n")
        assert f" {m['api_name']} v{m['api_version']} " in head
        tree = [found for line in lines if (found := TREE_LINE.match(line))]
        top = [(int(t[1]), int(t[2])) for t in tree if t[3] == ""]
        # What stands at the left margin is the whole frame, part after part.
        at = 0
        for offset, size in top:
            assert offset == at
            at += size
        assert at == len(frame)
        cells: list[str] = []
        for line in (line for line in lines if re.match(r"  [0-9a-f]{8}  ", line)):
            assert int(line[2:10], 16) == len(cells)
            hidden = re.fullmatch(r"([\d,]+) bytes hidden", line[12:])
            cells += ["**"] * int(hidden[1].replace(",", "")) if hidden else line[12:60].split()
        assert len(cells) == len(frame)
        assert all(cell in ("**", f"{byte:02x}") for cell, byte in zip(cells, frame, strict=True))
        if m["api_name"] in ("Metadata", "ListOffsets", "Heartbeat", "JoinGroup"):
            assert "**" not in cells
    assert any("**" in block for block in blocks)


def test_json_with_bodies(run: Run) -> None:
    validator = show_validator()
    code, out, err = run("--json", SMALL)
    assert (code, err) == (0, "")
    assert out.isascii()
    objects = [json.loads(line) for line in out.splitlines()]
    assert len(objects) == len(brief(SMALL))
    for short in brief(SMALL)[::5]:
        validator.validate(short)
    for m in {(m["api_name"], m["api_version"], m["direction"]): m for m in objects}.values():
        validator.validate(m)
    for m, short in zip(objects, brief(SMALL), strict=True):
        assert {name: m[name] for name in short} == short
        if m["direction"] == "request":
            assert m["header"]["ApiKey_name"] == m["api_name"]
            assert m["header"]["ClientId"] == m["client_id"]
        assert m["header"]["CorrelationId"] == m["correlation_id"]


def show_validator() -> Any:
    import jsonschema

    schema = json.loads((ROOT / "docs" / "show.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_every_sample_is_valid_json(run: Run) -> None:
    validator = show_validator()
    for name in WHOLE[1:]:
        code, out, _ = run("--json", "--tail", "200", SAMPLES / name)
        assert code == 0
        for line in out.splitlines()[::7]:
            validator.validate(json.loads(line))


# Terminals, pipes, disks

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def test_colors_only_where_they_are_wanted() -> None:
    plain = kafkatap("show", "-n", "20", "--tree", SMALL)
    assert "\x1b" not in plain.out
    code, shown = on_terminal("show", "-n", "20", "--tree", "--no-progress", SMALL)
    assert code == 0
    assert "\x1b[" in shown
    heading, rest = ESCAPES.sub("", shown).split("\n", 1)
    assert heading.startswith("packet time ")
    assert plain.err == "kafkatap: 20 of 926 messages shown\n"  # also for programs
    assert rest == plain.out + plain.err
    assert "\x1b" not in on_terminal("show", "-n", "20", "--no-progress", SMALL, NO_COLOR="1")[1]
    assert "\x1b" not in on_terminal("show", "-n", "20", "--no-progress", SMALL, TERM="dumb")[1]
    assert "\x1b" not in on_terminal("show", "-n", "20", "--no-progress", "--color", "never", SMALL)[1]
    forced = kafkatap("show", "-n", "20", "--tree", "--color", "always", SMALL, NO_COLOR="1").out
    assert "\x1b[" in forced
    assert ESCAPES.sub("", forced) == plain.out
    assert "\x1b" not in kafkatap("show", "-n", "5", "--json", "--color", "always", SMALL).out


def test_an_encoding_without_our_letters() -> None:
    done = subprocess.run(
        [*KAFKATAP, "show", "-n", "20", str(SMALL)], env=environment(PYTHONIOENCODING="ascii"), capture_output=True,
        check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.isascii()
    assert b"\\u2192" in done.stdout


def test_a_reader_that_goes_away() -> None:
    for more in ("", "--tree", "--json", "--stream"):
        line = f"{' '.join(KAFKATAP)} show {more} {SAMPLE} | head -n 1; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", line], capture_output=True, cwd=ROOT, env=environment(), timeout=60, check=True
        )
        assert done.stdout.decode().splitlines()[-1] == "0"
        assert without_compiling(done.stderr.decode()) == ""


def test_a_full_disk() -> None:
    for more in ([], ["--json"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [*KAFKATAP, "show", *more, str(SAMPLE)], stdout=full, stderr=subprocess.PIPE, cwd=ROOT,
                env=environment(), timeout=60, check=False,
            )  # fmt: skip
        assert done.returncode == 2
        assert without_compiling(done.stderr.decode()) == "kafkatap: no space left on device\n"


@pytest.mark.parametrize("more", [[], ["--stream"]])
def test_interrupted(more: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kafkatap", "show", "--tree", *more, str(SAMPLE)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, cwd=ROOT, env=environment(),
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.1)  # it waits for us to read on
    process.send_signal(2)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert len(out) < 1_000_000  # of 5 MB
    assert without_compiling(err.decode()) == ""
    assert without_compiling(err.decode()) == ""


# What is no capture, or damaged


WRONG = (
    "missing.pcap", "folder", "empty.pcap", "tiny.pcap", "text.txt", "xz.pcap.xz", "no-packets.pcap", "cut.pcap",
    "cut.pcapng", "cut.pcap.gz", "cut.pcap.zst", "damaged.pcap", "damaged.pcapng", "damaged.pcap.gz",
)  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_capture_is_told_as_report_tells_it(
    captures: Path, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.chdir(captures)
    reported = main(["report", "--json", name]), capsys.readouterr().err
    for way in ([], ["--stream"]):
        code, out, err = run("--brief", "--json", *way, name)
        assert (code, err) == (reported[0], reported[1].replace("in the report", "shown"))
        assert len(err.splitlines()) == 1
        assert (len(out) > 1000) == name.startswith(("cut", "damaged"))


def test_one_wrong_capture_of_several(captures: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(captures)
    code, out, err = run("--brief", "--json", "text.txt", "halves-1.pcap", "halves-2.pcap")
    assert code == 1
    assert err.startswith("kafkatap: text.txt: not a pcap")
    assert len(out.splitlines()) == len(brief(SAMPLE))


@pytest.mark.parametrize(
    ("api", "topics", "partitions", "offset"),
    [("Fetch", "Topics", "Partitions", "FetchOffset"), ("OffsetCommit", "Topics", "Partitions", "CommittedOffset")],
)
def test_requests_on_one_partition_have_its_offset(api: str, topics: str, partitions: str, offset: str) -> None:
    path = SAMPLES / "advice" / "lagging-group.pcap.zst"
    chosen = (path, "--only", "requests", "-f", f"api == {api}")
    lines = kafkatap("show", *chosen).out.splitlines()[1:]
    bodies = [json.loads(line)["body"] for line in kafkatap("show", "--json", *chosen).out.splitlines()]
    said = [re.search(r"\[\d+\]  offset=(\d+)(  |$)", line) for line in lines]
    counts = set()
    for found, body in zip(said, bodies, strict=True):
        offsets = [part[offset] for topic in body[topics] for part in topic[partitions]]
        counts.add(len(offsets))
        assert (found and int(found.group(1))) == (offsets[0] if len(offsets) == 1 else None)
    assert counts >= {1, 2}


@pytest.mark.parametrize("columns", [60, 100, 160])
def test_lines_are_broken_between_their_columns(columns: int) -> None:
    """No name and no value is cut in the middle."""
    plain = kafkatap("show", "-n", "50", SMALL).out
    _, shown = on_terminal("show", "-n", "50", "--no-progress", SMALL, columns=columns)
    lines = ESCAPES.sub("", shown).splitlines()[:-1]
    lines = lines[lines.index(plain.splitlines()[0]) :]  # below the heading
    assert [word for line in lines for word in line.split()] == plain.split()
    assert all(len(line) <= columns for line in lines if "  " in line.strip())
    assert kafkatap("show", "-n", "50", "--width", str(columns), SMALL).out.split() == plain.split()
    assert kafkatap("show", "-n", "50", "--width", "0", SMALL).out == plain
