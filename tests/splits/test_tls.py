"""TLS connections in splits: the rows, the columns of connections and the counts are those of one process."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.splits.run_options import RunOptions
from tests.splits.join_support import check, cut_at_packets, cut_evenly, packets_at_random
from tests.splits.join_talks import pipelined
from tests.support.captures import PcapRecords, pcap_bytes, read_bytes
from tests.support.sweeps import seeds
from tests.support.tcp import Segment, encode, merge, shake
from tests.support.tls_talk import OverTls, TLSv1_2, TLSv1_3
from tests.tls.real_endpoints import FOLDER, connections, truth, without_resumed
from tests.ways.reports import assert_same, one_engine, over_splits

SUITES = {
    "TLS 1.3": (TLSv1_3, None),
    "TLS 1.2 GCM": (TLSv1_2, "ECDHE-ECDSA-AES128-GCM-SHA256"),
    "TLS 1.2 CBC": (TLSv1_2, "ECDHE-ECDSA-AES128-SHA256"),
    "TLS 1.2 ChaCha20": (TLSv1_2, "ECDHE-ECDSA-CHACHA20-POLY1305"),
}


def conversations(over: OverTls, count: int = 120) -> list[list[Segment]]:
    """A connection of each suite, one at a time and pipelined; and one in the clear."""
    made = []
    for n, (version, ciphers) in enumerate(SUITES.values()):
        for depth in (0, 4):
            client = (f"10.0.7.{n}", 42_000 + depth)
            made.append(over.replayed(pipelined(count, depth, client=client), version, ciphers))
    return [*made, pipelined(40, client=("10.0.7.99", 42_000))]


def write(path: Path, segments: Sequence[Segment]) -> Path:
    path.write_bytes(pcap_bytes(encode(segments), nanoseconds=True))
    return path


@pytest.fixture
def early_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """No copies of packets of the split before are expected, so that heads come soon in short captures."""
    monkeypatch.setattr("kafkatap.splits.survey.COPY_NS", 0)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A capture of all suites, and its key log."""
    folder = tmp_path_factory.mktemp("tls")
    over = OverTls(folder)
    return write(folder / "tls.pcap", merge(*conversations(over))), over.key_log


@pytest.mark.usefixtures("early_heads")
@pytest.mark.parametrize("has_keys", [True, False])
@pytest.mark.parametrize("count", [2, 7])
def test_every_suite(recorded: tuple[Path, Path], count: int, has_keys: bool) -> None:
    path, keylog = recorded
    check(cut_evenly(path, count), records=True, keylog=keylog if has_keys else None)


@pytest.mark.parametrize("case", ["resumed-ticket", "resumed-id"])
def test_sessions_that_are_resumed_in_another_split(case: str, tmp_path: Path) -> None:
    """The key log has only the secrets of full handshakes, the first of three connections."""
    fewer, plain = tmp_path / "keys.log", tmp_path / "matrix.pcap"
    fewer.write_text(without_resumed((FOLDER / "matrix.keys.log").read_text()))
    plain.write_bytes(read_bytes(FOLDER / "matrix.pcap.zst"))
    ports = [row["front"] for row in truth("matrix")["connections"] if row["case"] == case]
    begun = [connections("matrix", "matrix")[port]["first_packet"] - 1 for port in ports]
    check(cut_at_packets(plain, begun[1:]), keylog=fewer)


@pytest.mark.usefixtures("early_heads")
@pytest.mark.parametrize("seed", seeds(3, 1))
def test_cut_anywhere(recorded: tuple[Path, Path], seed: int) -> None:
    path, keylog = recorded
    for keys in (keylog, None):
        check(cut_at_packets(path, packets_at_random(path, 5, seed)), records=True, keylog=keys)


@pytest.mark.usefixtures("early_heads")
@pytest.mark.parametrize("has_keys", [True, False])
@pytest.mark.parametrize("seed", seeds(3, 1))
def test_lost_packets(recorded: tuple[Path, Path], tmp_path: Path, seed: int, has_keys: bool) -> None:
    path, keylog = recorded
    data, _ = PcapRecords(path).drop(0.02, burst=1 + seed, seed=seed)
    lossy = tmp_path / "lossy.pcap"
    lossy.write_bytes(data)
    check(cut_evenly(lossy, 5), keylog=keylog if has_keys else None)


@pytest.mark.usefixtures("early_heads")
def test_out_of_order(tmp_path: Path) -> None:
    over = OverTls(tmp_path)
    segments = shake(merge(*conversations(over, 60)), random.Random(3))
    path = write(tmp_path / "shaken.pcap", segments)
    check(cut_evenly(path, 6), keylog=over.key_log)


@pytest.mark.usefixtures("early_heads")
def test_without_handshake(tmp_path: Path) -> None:
    """The capture begins in the middle of all connections."""
    over = OverTls(tmp_path)
    whole = merge(*conversations(over))
    path = write(tmp_path / "middle.pcap", whole[len(whole) // 5 :])
    check(cut_evenly(path, 5), keylog=over.key_log)
    check(cut_evenly(path, 5))


@pytest.mark.usefixtures("early_heads")
def test_wrong_and_missing_keys(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    path, keylog = recorded
    lines = keylog.read_bytes().splitlines()
    wrong, some = tmp_path / "wrong.log", tmp_path / "some.log"
    wrong.write_bytes(b"\n".join(line[:-8] + b"deadbeef" for line in lines) + b"\n")
    some.write_bytes(b"\n".join(line for n, line in enumerate(lines) if n % 3) + b"\n")
    check(cut_evenly(path, 4), keylog=wrong)
    check(cut_evenly(path, 4), keylog=some)


@pytest.mark.usefixtures("early_heads")
def test_ports_used_again(tmp_path: Path) -> None:
    """TLS and plain connections follow each other on the same addresses and ports."""
    over = OverTls(tmp_path)
    found: list[Segment] = []
    time = 0
    for n in range(6):
        options = {"time_ns": time} if time else {}
        talk = pipelined(40, n % 2 * 3, isn=(1_000_000 * (n + 1), 77_000_000 * (n + 1)), **options)
        found += over.replayed(talk) if n % 3 else talk
        time = found[-1].time_ns + 1_000_000
    path = write(tmp_path / "again.pcap", found)
    check(cut_evenly(path, 5), keylog=over.key_log)
    check(cut_evenly(path, 5))


@pytest.mark.usefixtures("early_heads")
@pytest.mark.parametrize("has_keys", [True, False])
def test_estimates_and_sections(
    recorded: tuple[Path, Path], has_keys: bool, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Splits count the estimates of one engine, and all other tables on TLS."""
    path, keylog = recorded
    key_log = KeyLog([str(keylog)]) if has_keys else None
    options = RunOptions(ReadOptions(key_log=key_log), wanted=("tls",))
    wanted = one_engine([path], options)
    assert_same(over_splits([path], 5, options), wanted)
    assert bool(wanted["reports"]["tls_estimates"]) != has_keys


def test_client_randoms_that_no_survey_sees(recorded: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a renegotiated handshake: the lines come when a split looks for them."""
    path, keylog = recorded
    monkeypatch.setattr("kafkatap.splits.survey._FlowEngine._note_handshake", lambda *_: None)
    reading = RunOptions(ReadOptions(key_log=KeyLog([str(keylog)])))
    assert_same(over_splits([path], 3, reading), one_engine([path], reading))


@pytest.mark.usefixtures("early_heads")
def test_a_recording(corpus: Path, tmp_path: Path) -> None:
    """Connections to a real broker, TLS 1.2 and 1.3, with SASL and without."""
    path = tmp_path / "broker.pcap"
    path.write_bytes(read_bytes(corpus / "captures" / "apache-4.3-broker1.pcap.zst"))
    check(cut_evenly(path, 6), keylog=corpus / "captures" / "apache-4.3.keys.log")
