"""Key logs: what is found in them, how they grow, and what no text shows."""

from __future__ import annotations

import gzip
import os
import pickle
import random
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kafkatap.engine.tls import key_log as key_log_module
from kafkatap.engine.tls import key_log_sources
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.engine.tls.secrets import LABELS

CHANCE = random.Random(1)
RANDOM = bytes(range(32))
OTHER = bytes(range(1, 33))
MASTER = CHANCE.randbytes(48)


def line(label: str, owner: bytes = RANDOM, secret: bytes = MASTER) -> bytes:
    return f"{label} {owner.hex()} {secret.hex()}\n".encode()


def written(folder: Path, data: bytes, name: str = "keys.log") -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


def test_all_labels(tmp_path: Path) -> None:
    secrets = {label: CHANCE.randbytes(48 if label == b"CLIENT_RANDOM" else 32) for label in LABELS}
    data = b"# a comment\n\n" + b"".join(line(label.decode(), RANDOM, secret) for label, secret in secrets.items())
    log = KeyLog([written(tmp_path, data + line("EXPORTER_SECRET"))])
    found = log.secrets(RANDOM)
    assert found is not None
    assert {label: getattr(found, name) for label, name in LABELS.items()} == secrets
    assert log.secrets(OTHER) is None
    assert log.problems == []
    assert log.line_count == len(LABELS)
    again = KeyLog()
    again.add(log.lines_for([RANDOM, OTHER]))
    assert again.lines_for([RANDOM]) == log.lines_for([RANDOM])


@pytest.mark.parametrize(
    ("data", "is_found"),
    [
        (line("CLIENT_RANDOM").replace(b"\n", b"\r\n"), True),
        (line("CLIENT_RANDOM").upper(), True),
        (line("CLIENT_RANDOM").replace(b" ", b"  \t "), True),
        (b" " + line("CLIENT_RANDOM"), True),
        (line("CLIENT_RANDOM")[:-1], True),
        (b"\0\n" + line("CLIENT_RANDOM"), True),
        (b"\xff" * 200_000 + b"\n" + line("CLIENT_RANDOM"), True),
        (line("CLIENT_RANDOM")[:-2], False),
        (line("CLIENT_RANDOM")[:-3], False),
        (line("CLIENT_RANDOM").replace(b"0001", b"00g1"), False),
        (line("CLIENT_RANDOM", RANDOM[:31]), False),
        (line("CLIENT_RANDOM", RANDOM + b"1"), False),
        (line("CLIENT_RANDOM", RANDOM, MASTER * 1000), False),
        (line("CLIENT_RANDOM", RANDOM, MASTER[:32]), False),
        (line("CLIENT_RANDOM").replace(b"\n", b" 00\n"), False),
        (line("CLIENT_RANDOMS"), False),
        (b"x" + line("CLIENT_RANDOM"), False),
        (b"\0" + line("CLIENT_RANDOM"), False),
    ],
)
def test_lines(tmp_path: Path, data: bytes, is_found: bool) -> None:
    log = KeyLog([written(tmp_path, data)])
    assert (log.secrets(RANDOM) is not None) == is_found
    assert is_found or log.problems


def test_session_ids_of_tls_1_2() -> None:
    log = KeyLog()
    log.add(f"RSA Session-ID:{OTHER.hex()} Master-Key:{MASTER.hex()}\nRSA 0011 {MASTER.hex()}\n".encode())
    assert log.lines_for([RANDOM]) == b""
    assert log.master_of_session(OTHER, RANDOM) == MASTER
    assert log.master_of_session(RANDOM, RANDOM) == b""
    assert log.master_of_session(b"", RANDOM) == b""
    assert log.lines_for([RANDOM]) == b"CLIENT_RANDOM %s %s\n" % (RANDOM.hex().encode(), MASTER.hex().encode())
    assert log.session_lines(5) == f"RSA Session-ID:{OTHER.hex()} Master-Key:{MASTER.hex()}\n".encode()
    assert log.session_lines(0) == b""
    assert log.secrets(OTHER) is None
    assert not log.problem_lines


def test_the_latest_line_counts() -> None:
    log = KeyLog()
    log.add(line("CLIENT_RANDOM") + line("CLIENT_RANDOM", RANDOM, bytes(48)))
    found = log.secrets(RANDOM)
    assert found is not None
    assert found.master == bytes(48)
    log.add(line("CLIENT_RANDOM"))
    found = log.secrets(RANDOM)
    assert found is not None
    assert found.master == MASTER


@pytest.mark.parametrize("name", ["keys.log.gz", "keys.log.zst", "keys.log"])
def test_compressed_files(tmp_path: Path, name: str) -> None:
    data = b"".join(line("CLIENT_TRAFFIC_SECRET_0", CHANCE.randbytes(32)) for _ in range(50_000)) + line(
        "CLIENT_RANDOM"
    )
    packed = gzip.compress(data) if name.endswith("gz") else zstandard.compress(data) if name.endswith("zst") else data
    log = KeyLog([written(tmp_path, packed, name)])
    assert log.line_count == 50_001
    assert log.secrets(RANDOM) is not None
    assert len(list(log.traffic_secrets())) == 4_096
    assert not log.poll()
    (tmp_path / name).write_bytes(packed[: len(packed) // 2])
    if not name.endswith("log"):
        assert any("damaged" in problem for problem in KeyLog([str(tmp_path / name)]).problems)


def test_a_file_without_secrets_is_said(tmp_path: Path) -> None:
    log = KeyLog([written(tmp_path, b"hello\nworld\n"), written(tmp_path, line("CLIENT_RANDOM"), "b")])
    assert len(log.problems) == 2
    assert "keys.log: no line" in log.problems[0]
    assert "2 lines" in log.problems[1]


def test_a_file_grows_by_half_lines(tmp_path: Path) -> None:
    path = Path(written(tmp_path, b""))
    log = KeyLog([str(path)])
    log.is_growing = True
    whole = line("CLIENT_TRAFFIC_SECRET_0", OTHER) + line("CLIENT_RANDOM")
    for byte in range(len(whole)):
        with path.open("ab") as file:
            file.write(whole[byte : byte + 1])
        log.poll()
        found = log.secrets(RANDOM)
        assert (found is not None) == (byte >= len(whole) - 2)
        traffic = log.secrets(OTHER)
        if traffic is not None and byte >= len(line("CLIENT_TRAFFIC_SECRET_0")) - 2:
            assert traffic.client_traffic == MASTER
    assert not log.poll()
    assert log.problem_lines == 0


def test_truncated_replaced_and_rewritten_files(tmp_path: Path) -> None:
    path = Path(written(tmp_path, line("CLIENT_RANDOM") * 3))
    log = KeyLog([str(path)])
    third, fourth = bytes(32), b"4" * 32
    path.write_bytes(line("CLIENT_RANDOM", OTHER))  # truncated and written anew
    assert log.poll()
    assert log.secrets(OTHER) is not None
    path.write_bytes(line("CLIENT_RANDOM", third) * 9)  # truncated, and larger than before
    assert log.poll()
    assert log.secrets(third) is not None
    os.rename(path, tmp_path / "rotated")
    assert not log.poll()
    written(tmp_path, line("CLIENT_RANDOM", fourth))
    assert log.poll()
    assert log.secrets(fourth) is not None
    assert log.secrets(third) is not None  # its file is still open
    path.unlink()
    assert not log.poll()
    assert log.secrets(fourth) is not None


def test_a_long_line_that_grows(tmp_path: Path) -> None:
    path = Path(written(tmp_path, b""))
    log = KeyLog([str(path)])
    for data in (b"x" * 100_000, b"y" * 100_000, b"\n", line("CLIENT_RANDOM")):
        with path.open("ab") as file:
            file.write(data)
        log.poll()
    assert log.secrets(RANDOM) is not None
    assert log.problem_lines == 1


def test_traffic_secrets_the_latest_first() -> None:
    log = KeyLog()
    owners = [CHANCE.randbytes(32) for _ in range(10)]
    for owner in owners:
        log.add(line("CLIENT_TRAFFIC_SECRET_0", owner) + line("CLIENT_RANDOM", owner))
        log.add(line("SERVER_TRAFFIC_SECRET_0", owner, bytes(32)))
    log.take(owners[3])
    found = [(secret.client_random, secret.is_server) for secret in log.traffic_secrets()]
    assert found == [(owner, by) for owner in reversed(owners) for by in (True, False) if owner != owners[3]]


def test_many_extents_are_scanned_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_log_module, "_EXTENTS", 10)
    paths = [written(tmp_path, b"", name) for name in "ab"]
    log = KeyLog(paths)
    log.add(line("CLIENT_RANDOM", b"a" * 32))
    owners = [CHANCE.randbytes(32) for _ in range(30)]
    for number, owner in enumerate(owners):
        with open(paths[number % 2], "ab") as file:
            file.write(line("CLIENT_RANDOM", owner))
        assert log.poll()
    assert all(log.secrets(owner) is not None for owner in [*owners, b"a" * 32])


def test_what_is_in_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_log_module, "_HELD", 100_000)
    log = KeyLog()
    owners = [CHANCE.randbytes(32) for _ in range(2_000)]
    for owner in owners:
        log.add(line("CLIENT_RANDOM", owner))
    assert log.secrets(owners[0]) is None
    assert log.secrets(owners[-1]) is not None
    assert len(pickle.dumps(log)) < 200_000


def test_blocks_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_log_module, "_BLOCK", 1_000)
    monkeypatch.setattr(key_log_sources, "_LONGEST_LINE", 600)
    owners = [CHANCE.randbytes(32) for _ in range(300)]
    data = b""
    for owner in owners:
        data += line("CLIENT_TRAFFIC_SECRET_0", owner) + CHANCE.choice((b"", b"# x\n", b"#" * 700 + b"\n"))
    for path in (written(tmp_path, data), written(tmp_path, gzip.compress(data), "keys.gz")):
        log = KeyLog([path])
        assert all(log.secrets(owner) is not None for owner in owners)
        assert [secret.client_random for secret in log.traffic_secrets()] == owners[::-1]


def test_pickled_key_logs(tmp_path: Path) -> None:
    path = written(tmp_path, line("CLIENT_RANDOM"))
    log = KeyLog([path])
    log.add(line("CLIENT_RANDOM", OTHER))
    again = pickle.loads(pickle.dumps(log))
    assert again.secrets(RANDOM) is not None
    assert again.secrets(OTHER) is not None
    os.unlink(path)
    assert pickle.loads(pickle.dumps(log)).secrets(OTHER) is not None


def test_no_text_has_a_secret(tmp_path: Path) -> None:
    data = line("CLIENT_RANDOM") + line("CLIENT_TRAFFIC_SECRET_0") + b"RSA " + line("CLIENT_RANDOM")
    log = KeyLog([written(tmp_path, data)])
    texts = [log, log.secrets(RANDOM), list(log.traffic_secrets()), log.problems, *log._lines_of(RANDOM)]
    for text in map(repr, texts):
        assert MASTER.hex()[:6] not in text
        assert repr(MASTER)[2:10] not in text


@given(st.binary(max_size=400), st.integers(0, 200))
def test_hostile_bytes(noise: bytes, at: int) -> None:
    good = line("CLIENT_RANDOM")
    log = KeyLog()
    log.add(good[:at] + noise + good[at:] + b"\n" + line("SERVER_TRAFFIC_SECRET_0", OTHER))
    log.secrets(RANDOM)
    assert log.secrets(OTHER) is not None
    assert len(list(log.traffic_secrets())) <= 2


def test_which_connections_have_lines(tmp_path: Path) -> None:
    """By their client random, by that of the full handshake that they resume, or by their session id."""
    other, resumed, session = bytes(32), b"\1" * 32, b"\2" * 32
    asked = [(RANDOM, b""), (other, b""), (resumed, session), (other, session)]
    path = written(tmp_path, line("CLIENT_RANDOM"))
    key_log = KeyLog([path], is_growing=True)
    assert key_log.have_lines([]) == []
    assert key_log.have_lines(asked) == [True, False, False, False]
    key_log.issue(b"ticket", RANDOM)
    assert not key_log.resume(resumed, [b"unknown"])
    assert key_log.resume(resumed, [b"unknown", b"ticket"])
    assert key_log.have_lines(asked) == [True, False, True, False]
    found = key_log.secrets(resumed)
    assert found is not None
    assert found.master == MASTER
    with open(path, "ab") as file:
        file.write(f"RSA Session-ID:{session.hex()} Master-Key:{MASTER.hex()}\n".encode())
    key_log.poll()
    assert key_log.have_lines(asked) == [True, False, True, True]


def test_a_session_that_was_resumed_again(tmp_path: Path) -> None:
    """The ticket of a resumed session leads to the full handshake; a session does not resume itself."""
    key_log = KeyLog([written(tmp_path, line("CLIENT_RANDOM"))])
    second, third = b"\1" * 32, b"\2" * 32
    assert key_log.secrets(third) is None
    key_log.issue(b"first", RANDOM)
    assert not key_log.resume(RANDOM, [b"first"])
    assert key_log.resume(second, [b"first"])
    key_log.issue(b"again", second)
    assert key_log.resume(third, [b"again"])
    found = key_log.secrets(third)
    assert found is not None
    assert found.master == MASTER
    key_log.begin_run()
    assert not key_log.resume(third, [b"again"])
