"""`kafkatap collect` with a `kubectl` of ours: spans, clocks, hosts that fail, exit codes, files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kafkatap.collect.far_side import Clock
from kafkatap.collect.places import place_of
from kafkatap.commands.collect import moment_of
from tests.cli.running import Done, kafkatap
from tests.support.captures import read_capture
from tests.support.tcp import START_NS, Segment
from tests.wire.kafkatalk import METADATA, KafkaTalk, small_talk

from .pods import Pods, write_kept

SECOND = 1_000_000_000
AT = "2024-01-01 00:01:00Z"
MIDDLE = START_NS + 60 * SECOND
FIRST, SECOND_FILE, THIRD = (f"kept-20240101T0000{n}.000Z.pcapng" for n in ("00", "30", "59"))


@pytest.fixture
def pods(tmp_path: Path) -> Pods:
    return Pods(tmp_path)


def conversation(broker: int, begin: int, end: int, ahead: float = 0) -> list[Segment]:
    """A client that asks a broker every second; times by a clock that is ahead."""
    client = ("10.0.0.200", 40_000 + broker)
    talk = KafkaTalk(client=client, broker=(f"10.0.0.{broker}", 9_092), time_ns=START_NS + begin * SECOND)
    talk.tcp.open()
    for number in range(begin, end):
        talk.exchange(METADATA, 1, number, Topics=[{"Name": "orders"}])
        talk.tcp.wait(SECOND - 4 * talk.step_ns)
    return [replace(s, time_ns=s.time_ns + int(ahead * SECOND)) for s in talk.segments]


def collected(pods: Pods, *words: str | Path) -> Done:
    return kafkatap("collect", "--at", AT, "--dir", "kept", *words, **pods.environment)


def test_the_span_of_all_hosts_is_one_report(pods: Pods, tmp_path: Path) -> None:
    for broker, name in enumerate(("broker-0", "broker-1", "broker-2")):
        folder = pods.add(name)
        for file, begin, end in ((FIRST, 0, 30), (SECOND_FILE, 30, 59), (THIRD, 59, 100)):
            write_kept(folder, file, conversation(broker + 1, begin, end))
    hosts = [f"kubectl:kafka/broker-{n}/tap" for n in range(3)]
    done = collected(pods, "--around", "10s", "-o", tmp_path / "out", *hosts, "--", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["capture"]["requests"] == 3 * 20
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == [f"kubectl_kafka_broker-{n}_tap.pcapng" for n in range(3)]
    for file in files:
        assert file.stat().st_mode & 0o777 == 0o600
        times = [packet.time_ns for packet in read_capture(file).packets]
        assert MIDDLE - 10 * SECOND <= min(times) < MIDDLE - 8 * SECOND
        assert MIDDLE + 8 * SECOND < max(times) < MIDDLE + 10 * SECOND
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o700
    assert done.err.count("its clock is as ours") == 3
    assert any(call.startswith("exec -i -n kafka broker-0 -c tap -- sh -c") for call in pods.calls)


def test_clocks_are_measured_and_corrected(pods: Pods, tmp_path: Path) -> None:
    """The clock of one host is 90 s ahead, that of another 3 s behind."""
    for broker, ahead in enumerate((0, 90, -3)):
        write_kept(pods.add(f"broker-{broker}", ahead), FIRST, conversation(broker + 1, 0, 200, ahead))
    hosts = [f"kubectl:kafka/broker-{n}" for n in range(3)]
    done = collected(pods, "--around", "5s", "-o", tmp_path / "out", "--no-report", *hosts)
    assert done.code == 0, done.err
    assert "its clock is 90.0 s ahead, give or take" in done.err
    assert "its clock is 3.00 s behind, give or take" in done.err
    for file in (tmp_path / "out").iterdir():
        times = [packet.time_ns for packet in read_capture(file).packets]
        assert abs(min(times) - (MIDDLE - 5 * SECOND)) < SECOND + 300_000_000
        assert len(times) in range(18, 44)


def test_the_report_is_one_of_all_hosts_at_corrected_times(pods: Pods) -> None:
    """A packet that two hosts have counts once, though their clocks differ by a minute."""
    talk = conversation(1, 0, 200)
    for host, ahead in (("broker-0", 0), ("broker-1", 60), ("broker-2", -7)):
        moved = [replace(s, time_ns=s.time_ns + ahead * SECOND) for s in talk]
        write_kept(pods.add(host, ahead), FIRST, moved)
    hosts = [f"kubectl:kafka/broker-{n}" for n in range(3)]
    done = collected(pods, "--around", "20s", *hosts, "--", "--json")
    assert done.code == 0, done.err
    capture = json.loads(done.out)["capture"]
    assert capture["files"] == 3
    assert capture["connections"] == 1
    assert capture["requests"] in range(39, 42)


def test_the_container_of_a_pod(pods: Pods) -> None:
    write_kept(pods.add_container("broker-0", "kafka", "tap", runs="tap"), FIRST, conversation(1, 0, 100))
    (pods.root / "kafka" / "broker-0" / "kafka").mkdir()
    write_kept(pods.add_container("broker-1", "tap", "kafka", runs="tap"), FIRST, conversation(2, 0, 100))
    assert collected(pods, "kubectl:kafka/broker-0/tap", "kubectl:kafka/broker-1").code == 0
    pods.add_container("broker-2", "kafka", "tap", runs="kafka")
    hosts = ["kubectl:kafka/broker-0", "kubectl:kafka/broker-0/mirror", "kubectl:kafka/broker-2/tap"]
    done = collected(pods, *hosts)
    assert done.code == 2
    default, wrong, stopped = (
        next(line for line in done.err.splitlines() if f"{host} is left out: " in line) for host in hosts
    )
    assert "cd" in default
    assert default.endswith('(Defaulted container "kafka" out of: kafka, tap)')
    assert wrong.endswith("Error from server (BadRequest): container mirror is not valid for pod broker-0")
    assert stopped.endswith('error: unable to upgrade connection: container not found ("tap")')


def test_equal_clocks_are_left_alone() -> None:
    assert Clock(3_000, 5_000).correction == 0
    assert Clock(-3_000, 5_000).correction == 0
    assert Clock(-9_000, 5_000).correction == -9_000


def test_a_clock_of_whole_seconds(pods: Pods, tmp_path: Path) -> None:
    folder = pods.add("broker-0")
    (folder.parent / "date").write_text("#!/bin/sh\nexec /bin/date +%s.%%N\n")
    (folder.parent / "date").chmod(0o755)
    write_kept(folder, FIRST, conversation(1, 0, 100))
    done = collected(pods, "-o", tmp_path / "out", "--no-report", "kubectl:kafka/broker-0")
    assert done.code == 0, done.err
    assert "its clock is as ours, give or take 50" in done.err


def test_hosts_that_fail_are_named_and_the_rest_is_merged(pods: Pods, tmp_path: Path) -> None:
    write_kept(pods.add("broker-0"), FIRST, conversation(1, 0, 100))
    write_kept(pods.add("broker-1"), "kept-20240102T000000.000Z.pcapng", small_talk().segments)
    (pods.root / "kafka" / "broker-2").mkdir()
    damaged = pods.add("broker-3")
    write_kept(damaged, FIRST, conversation(4, 0, 100))
    whole = (damaged / FIRST).read_bytes()
    (damaged / FIRST).write_bytes(whole[:-50])
    (pods.add("broker-5") / FIRST).write_bytes(b"no capture at all")
    hosts = [f"kubectl:kafka/broker-{n}" for n in range(6)]
    done = collected(pods, *hosts, "--", "--json")
    assert done.code == 4
    assert "kubectl:kafka/broker-1 is left out: it has no packets of that time" in done.err
    assert "kubectl:kafka/broker-2 is left out: " in done.err
    assert "kept" in done.err.split("broker-2 is left out: ")[1].splitlines()[0]
    assert "kubectl:kafka/broker-3: a part is missing: cut short" in done.err
    assert "broker-4 is left out: Error from server (NotFound): pods not found" in done.err
    assert "broker-5 is left out: " in done.err
    assert "5 of 6 hosts are left out, whole or in part: kubectl:kafka/broker-1, kubectl:kafka/broker-2" in done.err
    assert json.loads(done.out)["capture"]["requests"] > 150


def test_no_host_at_all(pods: Pods, tmp_path: Path) -> None:
    done = collected(pods, "-o", tmp_path / "out", "kubectl:kafka/a", "kubectl:kafka/b")
    assert done.code == 2
    assert "no host has packets of that time" in done.err
    assert list((tmp_path / "out").iterdir()) == []


def test_no_more_than_asked_for_is_fetched(pods: Pods) -> None:
    write_kept(pods.add("broker-0"), FIRST, conversation(1, 0, 300))
    done = collected(pods, "--around", "1h", "--most", "20k", "kubectl:kafka/broker-0", "--", "--json")
    assert done.code == 4
    assert "there are more than 20.0 KiB: the rest is missing" in done.err
    assert json.loads(done.out)["capture"]["requests"] > 10


def test_a_host_that_keeps_secrets_is_named(pods: Pods) -> None:
    folder = pods.add("broker-0")
    write_kept(folder, FIRST, conversation(1, 0, 59), "kept by kafkatap live, without tokens of SASL")
    write_kept(folder, THIRD, conversation(1, 59, 100), "kept by kafkatap live, with tokens of SASL")
    done = collected(pods, "kubectl:kafka/broker-0")
    assert done.code == 0
    assert "kubectl:kafka/broker-0 keeps tokens of SASL (live --keep-secrets)" in done.err


def test_names_of_a_host_reach_no_shell(pods: Pods, tmp_path: Path) -> None:
    """Only names that kafkatap gives are asked for."""
    folder = pods.add("broker-0")
    write_kept(folder, FIRST, conversation(1, 0, 100))
    for name in ("kept-20240101T000000.000Z.pcapng; touch x", "-n", "kept-20240101T000000.000Z-$(touch x).pcapng"):
        (folder / name).write_bytes(b"x")
    done = collected(pods, "kubectl:kafka/broker-0")
    assert done.code == 0, done.err
    assert not list(tmp_path.rglob("x"))


def test_without_an_output_nothing_is_left(pods: Pods, tmp_path: Path) -> None:
    write_kept(pods.add("broker-0"), FIRST, conversation(1, 0, 100))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    pods.environment["TMPDIR"] = str(temporary)
    assert collected(pods, "kubectl:kafka/broker-0").code == 0
    assert list(temporary.iterdir()) == []


def test_files_of_others_stay(pods: Pods, tmp_path: Path) -> None:
    write_kept(pods.add("broker-0"), FIRST, conversation(1, 0, 100))
    out = tmp_path / "out"
    again = ("-o", out, "--no-report", "kubectl:kafka/broker-0")
    assert collected(pods, *again).code == 0
    assert collected(pods, *again).code == 0  # replaces its own
    write_kept(out, "kubectl_kafka_broker-0.pcapng", small_talk().segments)
    done = collected(pods, *again)
    assert done.code == 2
    assert "--overwrite" in done.err
    assert collected(pods, *again, "--overwrite").code == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--at", "03:12"), "the following arguments are required: HOST"),
        (("--at", "03:12", "--no-report", "b"), "--no-report needs --output"),
        (("--at", "+10s", "b"), "there is no capture yet"),
        (("--at", "2999-01-01", "b"), "is still to come"),
        (("--at", "03:12", "kubectl:broker-0"), "a pod is kubectl:NAMESPACE/POD"),
        (("--at", "03:12", "kubectl:kafka/-x"), "a pod is kubectl:NAMESPACE/POD"),
        (("--at", "03:12", "two words"), "is no host"),
        (("--at", "03:12", "--", "--json"), "collect needs a host before --"),
    ],
)
def test_wrong_calls(words: tuple[str, ...], why: str) -> None:
    done = kafkatap("collect", *words)
    assert done.code == 2
    assert why in done.err


def test_a_time_of_day_is_the_latest_one() -> None:
    now = 1_704_067_200_000_000_000 + 3 * 3600 * SECOND  # 03:00 UTC
    assert moment_of("02:30", now, utc=True) == now - 1800 * SECOND
    assert moment_of("23:30", now, utc=True) == now - 3 * 3600 * SECOND - 1800 * SECOND
    assert moment_of("03:00:30", now, utc=True) == now + 30 * SECOND


def test_ssh_asks_nobody_and_believes_no_new_key() -> None:
    command = place_of("admin@broker-1", "config").command(["sh", "-c", "echo 'x y'"])
    assert command[-3:] == ["--", "admin@broker-1", """sh -c 'echo '"'"'x y'"'"''"""]
    assert {"BatchMode=yes", "StrictHostKeyChecking=yes", "ClearAllForwardings=yes"} <= set(command)
    assert command[command.index("-F") + 1] == "config"
