"""Splits that were joined give the tables of the local engine, wherever captures are cut: here without Spark."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkatap import analyze
from kafkatap.reassembly.flows import KEY_BYTES
from kafkatap.splits import survey as surveys_of_splits
from kafkatap.splits.decode import Outcome
from kafkatap.splits.flow_rows import STATE_ROW, FlowStates, as_keys
from kafkatap.splits.plan import Corrections
from kafkatap.splits.proof import compare
from kafkatap.splits.survey import SplitSurvey
from tests.splits.join_support import (
    assert_same,
    check,
    compared,
    cut_at,
    cut_at_packets,
    cut_evenly,
    differences,
    join,
    local,
    packets_at_random,
    rotate,
    unnumbered,
)
from tests.splits.join_talks import TALKS, busy, encrypted, foreign, large, lossy, pipelined
from tests.support.captures import PcapRecords, pcap_bytes, read_bytes, write_capture
from tests.support.split_plans import planned_splits
from tests.support.tcp import Segment, encode, merge, shake
from tests.wire.kafkatalk import FETCH, METADATA, PRODUCE, KafkaTalk, add_exchanges, request, response

SAMPLES = ("apache-4.3", "apache-2.8", "apache-0.10.2", "apache-0.8.2", "live-4.3")


def write(path: Path, segments: list[Segment], snap_length: int = 0) -> Path:
    path.write_bytes(pcap_bytes(encode(segments, snap_length=snap_length), nanoseconds=True))
    return path


@pytest.fixture
def early_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits of crafted captures, which are shorter than COPY_NS, have heads. They have no duplicates."""
    monkeypatch.setattr(surveys_of_splits, "COPY_NS", 0)


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_in_splits(samples: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "sample.pcap"
    path.write_bytes(read_bytes(samples / f"{name}.pcap.zst"))
    wanted = compared(local(path, records=True))
    joined = join(cut_at_packets(path, packets_at_random(path, 2, 1)), records=True)
    assert_same(joined, wanted)
    assert len(joined.plans[-1].tasks) == 3
    files = rotate(path, tmp_path / "rotated", packets_at_random(path, 3, 2), 2)
    wanted["files"] = compared(local(files))["files"]
    assert_same(join(planned_splits(files, 0), records=True), wanted)


def test_a_pcapng_in_splits(samples: Path) -> None:
    check(cut_evenly(samples / "apache-4.3-two-interfaces.pcapng", 4), records=True)


@pytest.mark.parametrize("name", TALKS)
def test_traffic_that_is_hard_to_cut(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "talk.pcap", TALKS[name]())
    check(cut_at_packets(path, packets_at_random(path, 5, len(name))), records=True)
    files = rotate(path, tmp_path / "rotated", packets_at_random(path, 2, 7), 3)
    check(planned_splits(files, 0), records=True)


@pytest.mark.usefixtures("early_heads")
def test_a_connection_through_all_splits(tmp_path: Path) -> None:
    """It is never quiet, and each split finishes its own part of it."""
    path = write(tmp_path / "long.pcap", pipelined(150))
    joined = check(cut_evenly(path, 8))
    assert joined.rounds == 1
    assert [len(task.primed) for task in joined.plans[0].tasks] == [0, 1, 1, 1, 1, 1, 1, 1]
    assert len(+joined.finished) == 8


@pytest.mark.usefixtures("early_heads")
@pytest.mark.parametrize("name", ["member of a group", "polling", "muted all the time"])
def test_what_a_connection_shows_once_needs_no_other_round(tmp_path: Path, name: str) -> None:
    """How long a group may wait for the member, what a request is behind, and when a mute window began."""
    path = write(tmp_path / "talk.pcap", TALKS[name]())
    joined = check(cut_evenly(path, 6))
    assert joined.rounds == 1
    assert [len(task.primed) for task in joined.plans[0].tasks] == [0, 1, 1, 1, 1, 1]


@pytest.mark.usefixtures("early_heads")
def test_a_throttled_client_with_requests_under_way_needs_no_other_round(tmp_path: Path) -> None:
    """No packet is one behind which nothing depends on what was before, so the split in which it begins has it all."""
    path = write(tmp_path / "talk.pcap", TALKS["muted with requests under way"]())
    joined = check(cut_evenly(path, 6))
    assert joined.rounds == 1
    assert [list(task.follows) for task in joined.plans[0].tasks] == [[1, 2, 3, 4, 5], [], [], [], [], []]


def _states(split: int, digests: Mapping[str, bytes]) -> FlowStates:
    rows = np.zeros(len(digests), STATE_ROW)
    rows["flow"] = as_keys(name.encode().ljust(KEY_BYTES) for name in digests)
    rows["digest"] = np.array([*digests.values()], "V16")
    rows["split"] = split
    return FlowStates(rows, [b""])


def test_heads_that_do_not_hold_one_after_the_other_are_dropped_in_growing_numbers() -> None:
    """Or else a job with many splits would decode again and again, and give up."""
    outcomes = [Outcome(split) for split in range(9)]
    for outcome in outcomes[1:]:
        outcome.claims = _states(outcome.split, {"one": b"a" * 16, "other": b"b" * 16})
        wrong = outcome.split == 3
        before = outcomes[outcome.split - 1]
        before.arrivals = _states(outcome.split, {"one": (b"c" if wrong else b"a") * 16, "other": b"b" * 16})
    one = b"one".ljust(KEY_BYTES)
    dropped = {(one, 1), (one, 2)}
    found = compare(outcomes, None, Corrections(set(dropped)))
    assert found is not None
    assert found.dropped == dropped | {(one, 3), (one, 4), (one, 5)}


def test_a_response_over_several_splits(tmp_path: Path) -> None:
    path = write(tmp_path / "large.pcap", large())
    joined = check(cut_evenly(path, 5), records=True)
    assert joined.rounds == 1
    # The splits that hold nothing but parts of it leave all of them to the one where it began.
    assert [list(task.follows) for task in joined.plans[0].tasks] == [[1, 2, 3, 4], [], [], [], []]


@pytest.mark.parametrize("clock_ns", [1_000_000, 1_000_000_000_000])
def test_clocks_that_stand_still(tmp_path: Path, clock_ns: int) -> None:
    """Many frames begin at the same time, in every split; their keys differ, and are those of the local engine."""
    segments = [replace(s, time_ns=s.time_ns // clock_ns * clock_ns) for s in pipelined(120)]
    path = write(tmp_path / "coarse.pcap", segments)
    for seed in range(3):
        joined = check(cut_at_packets(path, packets_at_random(path, 6, seed)), records=True)
        times = joined.tables["exchanges"]["request_first"]
        assert len(times.unique()) < len(times) / 2


@pytest.mark.parametrize("snap_length", [60, 100, 200])
def test_packets_cut_short(tmp_path: Path, snap_length: int) -> None:
    path = write(tmp_path / "short.pcap", merge(pipelined(), busy(3)), snap_length)
    check(cut_at_packets(path, packets_at_random(path, 4, snap_length)))


@pytest.mark.usefixtures("early_heads")
@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("made", [encrypted, foreign])
def test_what_is_not_read_is_not_shipped(tmp_path: Path, made: Callable[..., list[Segment]], opened: bool) -> None:
    """TLS and other protocols go over a boundary with a few packets, however long they go on."""
    segments = made(600, opened=True)
    path = write(tmp_path / "other.pcap", segments if opened else segments[8:])
    joined = check(cut_evenly(path, 3))
    assert joined.rounds == 1
    packets = {task.split: task.heads for task in joined.plans[0].tasks}
    bases = joined.plans[0].bases
    taken = [head - bases[split][0] for split, heads in packets.items() for head in heads.values()]
    assert len(taken) == 2
    assert max(taken) < 40


def test_captures_of_all_kinds_together(tmp_path: Path) -> None:
    """Compressed ones, one that is cut off, one that holds rubbish after some packets, and one that is none."""
    path = write(tmp_path / "whole.pcap", merge(busy(7), pipelined(client=("10.9.9.9", 41_000))))
    records = PcapRecords(path)
    n = len(records)
    folder = tmp_path / "files"
    folder.mkdir()
    parts = [records.slice(n * i // 6, n * (i + 1) // 6) for i in range(6)]
    names = ("f.pcap", "e.pcap.gz", "d.pcap", "c.pcap.zst", "b.pcap", "a.pcap")
    for name, part in zip(names, parts, strict=True):
        write_capture(folder / name, part)
    (folder / "d.pcap").write_bytes(parts[2][:-7])
    (folder / "b.pcap").write_bytes(parts[4][: len(parts[4]) // 2] + b"\xff" * 90)
    (folder / "no.pcap").write_bytes(b"this is no capture at all, but a text that somebody has left here")
    files = sorted(str(f) for f in folder.iterdir())
    joined = check(planned_splits(files, 4_000), records=True)
    damaged = [f for f in joined.tables["files"].to_pylist() if f["damage"]]
    assert [Path(f["path"]).name for f in damaged] == ["no.pcap", "d.pcap", "b.pcap"]


@pytest.mark.parametrize("delay", [20_000, 90_000])
def test_both_ends_of_a_connection(tmp_path: Path, delay: int) -> None:
    """One connection, its packets in order of time: as if both captures were one file."""
    segments = pipelined()
    elsewhere = [
        replace(s, time_ns=s.time_ns + (delay if s.source == segments[0].source else -delay)) for s in segments
    ]
    elsewhere.sort(key=lambda s: s.time_ns)
    one, two = write(tmp_path / "client.pcap", segments), write(tmp_path / "broker.pcap", elsewhere)
    first, second = (two, one) if elsewhere[0].time_ns < segments[0].time_ns else (one, two)
    both = sorted([*encode(segments), *encode(elsewhere)], key=lambda p: p.time_ns)
    whole = tmp_path / "both.pcap"
    whole.write_bytes(pcap_bytes(both, nanoseconds=True))
    wanted = compared(unnumbered(local(whole)))
    for size in (0, 7_000):
        joined = join(planned_splits([str(first), str(second)], size))
        assert not differences(compared(unnumbered(joined.tables)), wanted)
        assert joined.tables["connections"].num_rows == 1
        assert len(joined.plans[-1].both_ends) == 1
        assert len(joined.notes) == 1
        assert "both ends" in joined.notes[0]
        parts: Counter[tuple[str, str]] = Counter()
        for row in joined.tables["ledger"].to_pylist():
            parts[row["section"], row["part"]] += row["count"]
        rows = analyze([first, second]).ledger.to_pylist()
        assert parts == {(row["section"], row["part"]): row["count"] for row in rows}
        assert parts["packets", "duplicate"] == len(segments)
    assert not join(cut_evenly(whole, 3)).notes


def test_who_listens_is_known_from_its_packet_on(tmp_path: Path) -> None:
    """A SYN-ACK behind the boundary belongs to the split before; what began earlier without a SYN does not know of it,
    what begins later does."""
    opened = pipelined(6, client=("10.0.3.1", 45_000), step_ns=200_000)
    early, late = (
        [replace(s, source=_on(s.source, port), destination=_on(s.destination, port), time_ns=s.time_ns + later)
         for s in encrypted(12, opened=False)]
        for port, later in ((45_001, 250_000), (45_002, 600_000))
    )  # fmt: skip
    segments = merge(opened, early, late)
    path = write(tmp_path / "listeners.pcap", segments)
    for cut in (1, 2, 3):
        check(cut_at_packets(path, [cut]))


def _on(end: tuple[str, int], port: int) -> tuple[str, int]:
    """The same ends with the broker's port that others talk to, and another of the client's."""
    return ("10.0.0.2", 9_092) if end[1] == 9_093 else (end[0], port)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(("busy", "lossy", "shaken")),
    cuts=st.lists(st.integers(1, 10**6), min_size=1, max_size=6),
    rotated=st.booleans(),
    size=st.sampled_from((0, 2_500, 9_000)),
)
def test_any_traffic_cut_anywhere(
    tmp_path: Path, seed: int, kind: str, cuts: list[int], rotated: bool, size: int
) -> None:
    segments = lossy(seed, 1 + seed % 4) if kind == "lossy" else busy(seed)
    if kind == "shaken":
        segments = shake(segments, random.Random(seed))
    path = write(tmp_path / "any.pcap", segments)
    if rotated:
        files = rotate(path, tmp_path / f"rotated-{seed}-{len(cuts)}", [n % len(segments) or 1 for n in cuts], seed)
        check(planned_splits(files, size), records=True)
    else:
        check(cut_at(path, [n % path.stat().st_size for n in cuts]), records=True)


# ---------------------------------------------------------------- bait


def frames_in_records(count: int = 24) -> list[Segment]:
    """Records that hold Kafka frames, at the starts of segments too: requests, and responses to what was asked."""
    talk = KafkaTalk(mss=400, client_id="app")
    talk.tcp.open()
    add_exchanges(talk, 2)
    for n in range(10, 10 + count):
        if n % 2:
            inside = b"".join(request(METADATA, 4, k, Topics=[{"Name": "no"}]) for k in range(n - 3, n + 4))
            pieces = [{"Index": 0, "Records": inside * 6}]
            asked = talk.request(PRODUCE, 3, n, Acks=1, TopicData=[{"Name": "t", "PartitionData": pieces}])
            talk.respond(asked, Responses=[{"Name": "t", "PartitionResponses": [{"Index": 0}]}])
        else:
            asked = talk.request(FETCH, 4, n)
            inside = b"".join(response(FETCH, 4, n) for _ in range(40))
            found = [{"PartitionIndex": 0, "Records": inside}]
            talk.respond(asked, Responses=[{"Topic": "t", "Partitions": found}])
    talk.tcp.close()
    return talk.segments


def test_a_capture_inside_of_a_capture(tmp_path: Path) -> None:
    """Splits begin inside values that are captures themselves. Also where the search for the first record is misled to
    a record in there, the split before corrects it."""
    talk = KafkaTalk(mss=60_000, acks=False)
    talk.tcp.open()
    add_exchanges(talk, 4)
    inside = pcap_bytes(encode(pipelined(60)), nanoseconds=True)
    for n in range(10, 13):
        pieces = [{"Index": 0, "Records": inside}]
        talk.request(PRODUCE, 3, n, Acks=1, TopicData=[{"Name": "t", "PartitionData": pieces}])
    path = write(tmp_path / "bait.pcap", talk.segments)
    data = path.read_bytes()
    assert data.endswith(inside)
    records = PcapRecords(inside).starts
    first, last = data.index(inside), len(data) - len(inside)
    splits = cut_at(path, [first + 100, last + len(inside) // 2])
    assert check(splits, records=True).began_wrong == 0
    baited = check(splits, records=True, begin={1: first + records[3], 2: last + records[len(records) // 2 + 1]})
    assert baited.began_wrong > 0


@pytest.mark.usefixtures("early_heads")
def test_kafka_frames_inside_of_records(tmp_path: Path) -> None:
    """A split that takes frames out of records for those of the connection is found out, and decoded again."""
    segments = frames_in_records()
    path = write(tmp_path / "frames.pcap", segments)
    wanted = compared(local(path, records=True))
    repaired = 0
    for first in range(12, len(segments) - 10, len(segments) // 9):
        joined = join(cut_at_packets(path, [first, first + 9]), records=True)
        assert_same(joined, wanted)
        repaired += joined.rounds > 1
    assert repaired > 0


# ---------------------------------------------------------------- repair


def _head_too_early(surveys: list[SplitSurvey]) -> None:
    for rows in (survey.rows for survey in surveys):
        rows["head"] = np.where(rows["head"] > 0, np.maximum(1, rows["head"] // 2), 0)


def _head_anywhere(surveys: list[SplitSurvey]) -> None:
    for survey in surveys:
        survey.rows["head"] = survey.packets // 2


def _no_heads(surveys: list[SplitSurvey]) -> None:
    for rows in (survey.rows for survey in surveys):
        rows["head"] = rows["settled"] = 0


def _wrong_history(surveys: list[SplitSurvey]) -> None:
    n = 0
    for survey in surveys:
        survey.strings += [b"nobody's", b"x", b"PLAIN"]
        count = len(survey.strings)
        for row in survey.rows:
            wrong: tuple[dict[str, int], ...] = (
                {"client": 1}, {"software": count - 3}, {"serial": 1}, {"base_seq_a": 7, "base_seq_b": 7},
                {"handshake_rtt_ns": 5}, {"client_id": count - 2}, {"answers_at_once": 0}, {"protocol": 2},
                {"mechanism": count - 1}, {"began": 1}, {"rebalance_ms": 7},
            )  # fmt: skip
            for name, value in wrong[n % len(wrong)].items():
                row[name] = value
            n += 1


def _no_names(surveys: list[SplitSurvey]) -> None:
    for survey in surveys:
        survey.topic_names.clear()


@pytest.mark.parametrize("tamper", [_head_too_early, _head_anywhere, _no_heads, _wrong_history, _no_names])
def test_wrong_surveys_are_put_right(tmp_path: Path, tamper: Callable[[list[SplitSurvey]], None]) -> None:
    segments = merge(busy(11, 5), TALKS["new SASL"](), TALKS["throttled, broker mutes"](), TALKS["topic ids"]())
    path = write(tmp_path / "spoiled.pcap", segments)
    joined = check(cut_at_packets(path, packets_at_random(path, 4, 5)), records=True, tamper=tamper)
    assert 1 < joined.rounds < 8 or tamper is _no_heads


@pytest.mark.usefixtures("early_heads")
def test_a_correction_repeats_the_splits_that_it_touches(tmp_path: Path) -> None:
    """A head that does not hold concerns the split that has it and the one before."""
    path = write(tmp_path / "long.pcap", pipelined(150))

    def one_wrong_head(surveys: list[SplitSurvey]) -> None:
        surveys[5].rows["head"] -= 1

    driven: list[set[int]] = []
    joined = check(cut_evenly(path, 8), tamper=one_wrong_head, watch=driven.append)
    assert joined.rounds == 2
    assert driven == [set(range(8)), {4, 5}]


# ---------------------------------------------------------------- long recordings


@pytest.mark.parametrize("name", ["diverse", "apache-2.8", "apache-0.10.2", "apache-0.8.2"])
def test_recordings_in_splits(corpus: Path, tmp_path: Path, name: str) -> None:
    path = _recording(corpus, tmp_path, name)
    wanted = compared(local(path, records=True))
    assert_same(join(cut_at_packets(path, packets_at_random(path, 5, 1)), records=True), wanted)


def _recording(corpus: Path, tmp_path: Path, name: str) -> Path:
    folder = corpus / "captures"
    found = next(p for p in sorted(folder.glob(f"{name}.pcap*")))
    if found.suffix != ".zst":
        return found
    path = tmp_path / found.stem
    path.write_bytes(read_bytes(found))
    return path


@pytest.mark.parametrize("count", [9, *(pytest.param(count, marks=pytest.mark.long) for count in (4, 1, 30))])
def test_a_recording_cut_many_ways(corpus: Path, tmp_path: Path, count: int) -> None:
    path = _recording(corpus, tmp_path, "apache-4.3-broker1")
    wanted = compared(local(path))
    assert_same(join(cut_evenly(path, count)), wanted)
    files = rotate(path, tmp_path / "rotated", packets_at_random(path, 6, 1), 1)
    joined = join(planned_splits(files, 16 << 20))
    wanted["files"] = compared(local(files))["files"]
    assert_same(joined, wanted)


def test_a_recording_as_pcapng(corpus: Path, tmp_path: Path) -> None:
    path = _recording(corpus, tmp_path, "apache-4.3-broker3")
    assert_same(join(cut_evenly(path, 9)), compared(local(path)))


@pytest.mark.parametrize("burst", [1, 50])
def test_a_sample_with_lost_packets(samples: Path, tmp_path: Path, burst: int) -> None:
    _check_lossy(PcapRecords(samples / "apache-4.3.pcap.zst"), tmp_path, burst)


@pytest.mark.long
@pytest.mark.parametrize("burst", [1, 50])
def test_a_recording_with_lost_packets(corpus: Path, tmp_path: Path, burst: int) -> None:
    _check_lossy(PcapRecords(_recording(corpus, tmp_path, "apache-4.3-broker1")), tmp_path, burst)


def _check_lossy(records: PcapRecords, tmp_path: Path, burst: int) -> None:
    path = tmp_path / "lossy.pcap"
    path.write_bytes(records.drop(0.01, burst=burst, seed=4)[0])
    check(cut_evenly(path, 4))
