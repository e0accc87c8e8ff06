"""`--keylog` as a user runs it: what is decrypted, what is said, and that no secret is written anywhere."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

import kafkatap as library
from kafkatap.__main__ import main
from kafkatap.reassembly.pcapng_blocks import decryption_secrets
from tests.cli.running import kafkatap
from tests.cli.tls_captures import PASSWORD, TlsCaptures, make_tls_captures
from tests.support.captures import pcapng_bytes

#: What differs between a connection and its copy over TLS.
OF_THE_WIRE = ("packet_first", "packet_last", "exchange", "connection", "tls_version")
#: Commands and options that decode.
DECODING = (
    ("report",), ("report", "--json"), ("show",), ("show", "--tree"), ("show", "-x"), ("show", "--json"), ("records",),
    ("doctor",), ("upgrade-check",),
)  # fmt: skip


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsCaptures:
    return make_tls_captures(tmp_path_factory.mktemp("tls"))


def messages(*arguments: str | Path) -> list[dict[str, Any]]:
    done = kafkatap("show", "--json", *arguments)
    found = [json.loads(line) for line in done.out.splitlines()]
    return [{name: value for name, value in each.items() if name not in OF_THE_WIRE} for each in found]


def latency(*arguments: str | Path) -> Any:
    return json.loads(kafkatap("report", "--json", *arguments).out)["reports"]["latency"]


def test_messages_and_reports_are_those_of_the_clear(tls: TlsCaptures) -> None:
    expected = messages(tls.plain)
    assert len(expected) > 80
    assert messages(tls.capture, "--keylog", tls.key_log) == expected
    assert messages(tls.capture) == []
    assert latency(tls.capture, "--keylog", tls.key_log) == latency(tls.plain)


@pytest.mark.parametrize("command", DECODING, ids=" ".join)
def test_nothing_decrypted_is_written_unless_asked_for(tls: TlsCaptures, command: tuple[str, ...]) -> None:
    """No secret of the key log, and no password inside TLS."""
    words = [word for line in tls.key_log.read_text().splitlines() if line[0] != "#" for word in line.split()[1:]]
    done = kafkatap(*command, tls.capture, "--keylog", tls.key_log)
    assert done.code in (0, 3)
    shown = done.out + done.err
    assert not [word for word in words if word in shown]
    assert "battery" not in shown
    for part in (PASSWORD[1:9], PASSWORD[-9:]):
        assert part.hex(" ") not in shown
        assert part.hex() not in shown


def test_tokens_are_shown_only_by_name(tls: TlsCaptures) -> None:
    asked = ("-f", "api == SaslAuthenticate", "--tree", "--keylog", tls.key_log)
    assert "battery" not in kafkatap("show", tls.capture, *asked).out
    assert "battery" in kafkatap("show", tls.capture, *asked, "--show-secrets").out


def test_several_files_globs_and_compressed_ones(tls: TlsCaptures, tmp_path: Path) -> None:
    """A key log in pieces, one of them compressed, and one that is named twice."""
    lines = tls.key_log.read_bytes().splitlines(keepends=True)
    packed = tmp_path / "tls12.gz"
    for number, line in enumerate(lines):
        if line.startswith(b"CLIENT_RANDOM"):
            packed.write_bytes(gzip.compress(line))
        else:
            (tmp_path / f"part{number}.log").write_bytes(line)
    expected = messages(tls.plain)
    several = ("--keylog", tmp_path / "part*.log", "--keylog", packed, "--keylog", packed)
    assert messages(tls.capture, *several) == expected
    of_tls12 = [each for each in expected if each["client"].endswith(":30001")]
    assert messages(tls.capture, "--keylog", packed) == of_tls12


def test_the_variable_is_not_read(tls: TlsCaptures) -> None:
    done = kafkatap("show", "--json", tls.capture, SSLKEYLOGFILE=str(tls.key_log))
    assert done.out == ""


def test_two_captures_and_one_key_log(tls: TlsCaptures) -> None:
    done = kafkatap("compare", tls.capture, tls.plain, "--keylog", tls.key_log, "--json")
    assert done.code == 0
    assert "encrypted" not in done.err


def write_with_secrets(tls: TlsCaptures, path: Path, key_log: bytes) -> Path:
    """A pcapng that begins with its secrets, as `editcap --inject-secrets` writes them."""
    whole = pcapng_bytes(tls.packets)
    end = int.from_bytes(whole[4:8], "little")  # of the section header
    path.write_bytes(whole[:end] + decryption_secrets(key_log) + whole[end:])
    return path


def test_secrets_in_a_capture_need_no_option(tls: TlsCaptures, tmp_path: Path) -> None:
    """Also when the capture is read twice, and with a key log that has the rest."""
    lines = tls.key_log.read_bytes().splitlines(keepends=True)
    whole = write_with_secrets(tls, tmp_path / "whole.pcapng", b"".join(lines))
    expected = messages(tls.plain)
    assert messages(whole) == expected
    assert messages("--stream", whole) == messages("--stream", tls.plain)
    assert messages(whole, "--keylog", tls.key_log) == expected
    middle = next(number for number, line in enumerate(lines) if line.startswith(b"CLIENT_RANDOM"))
    half = write_with_secrets(tls, tmp_path / "half.pcapng", b"".join(lines[: middle + 1]))
    rest = tmp_path / "rest.log"
    rest.write_bytes(b"".join(lines[middle + 1 :]))
    assert messages(half, "--keylog", rest) == expected
    assert messages(half) == [each for each in expected if not each["client"].endswith(":30002")]


def test_library(tls: TlsCaptures, tmp_path: Path) -> None:
    analysis = library.analyze(tls.capture, keylog=tls.key_log)
    plain = library.analyze(tls.plain)
    names = ["api_name", "client_id", "request_bytes", "response_bytes", "broker_ns"]
    assert analysis.exchanges.select(names) == plain.exchanges.select(names)
    assert len(list(analysis.messages(body=False))) == len(list(plain.messages(body=False)))
    assert library.analyze(tls.capture).exchanges.num_rows == 0
    assert library.compare(tls.plain, tls.capture, keylog=[tls.key_log]).worse == 0
    assert library.examine(tls.capture, keylog=tls.key_log).table("findings") is not None
    with pytest.raises(FileNotFoundError, match="key log"):
        library.analyze(tls.capture, keylog=tmp_path / "none.log")


def complaint(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """What is said of wrong options."""
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    return err


def test_wrong_files(tls: TlsCaptures, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each message names the file and says what to do."""
    empty, pem, text, pipe = (tmp_path / name for name in ("empty.log", "key.pem", "notes.txt", "pipe"))
    empty.touch()
    pem.write_text("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\n")
    text.write_text("this is\nno key log\n")
    os.mkfifo(pipe)
    for path, said in (
        (tmp_path / "none.log", "there is no such key log"),
        (tmp_path / "*.keys", "there is no such key log"),
        (tmp_path, "this is a folder; name a key log in it"),
        (empty, "this key log is empty"),
        (pem, "this is a key or certificate, which decrypts no connection"),
        (text, "this is no key log"),
        (tls.capture, "this is a capture; --keylog names the file with its secrets"),
        (pipe, "save it to a file first"),
    ):
        for command in ("report", "show", "records", "doctor", "upgrade-check"):
            err = complaint(capfd, command, tls.capture, "--keylog", path)
            assert f"{path}" in err
            assert said in err
            assert "MIIE" not in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_of_someone_else(tls: TlsCaptures, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "keys.log"
    path.write_bytes(tls.key_log.read_bytes())
    path.chmod(0)
    assert "use sudo" in complaint(capfd, "report", tls.capture, "--keylog", path)


def test_wrong_keys(tls: TlsCaptures, tmp_path: Path) -> None:
    """Secrets of other sessions decrypt nothing; secrets that do not fit are no error."""
    other = tmp_path / "other.log"
    other.write_text("CLIENT_RANDOM " + "00" * 32 + " " + "11" * 48 + "\n")
    assert messages(tls.capture, "--keylog", other) == []
    false = tmp_path / "false.log"
    lines = [line.split() for line in tls.key_log.read_text().splitlines() if line[0] != "#"]
    false.write_text("".join(f"{label} {random} {'5a' * (len(secret) // 2)}\n" for label, random, secret in lines))
    done = kafkatap("report", tls.capture, "--keylog", false)
    assert done.code == 1
    assert "5a5a" not in done.out + done.err


def test_commands_without_captures_have_no_key_log(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["apis", "--keylog", "x"])
    assert "--keylog" in capfd.readouterr().err


def test_secrets_that_were_not_read_are_reported(tls: TlsCaptures, tmp_path: Path) -> None:
    whole = pcapng_bytes(tls.packets)
    end = int.from_bytes(whole[4:8], "little")
    block = bytearray(decryption_secrets(b"CLIENT_RANDOM 00 00\n"))
    block[12:16] = b"\xff\xff\xff\x7f"  # more than the block holds
    path = tmp_path / "x.pcapng"
    path.write_bytes(whole[:end] + block + whole[end:])
    for command in ("report", "show", "records", "doctor"):
        assert "1 block with TLS secrets was not read: damaged" in kafkatap(command, path).err
    done = kafkatap("report", "-v", tls.capture, "--keylog", tls.key_log)
    assert "key log: 9 secrets, 3 connections decrypted" in done.err
