"""The password that SASL/PLAIN clients sent on the wire of a recording is in no output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatap import analyze
from kafkatap.__main__ import main
from tests.support.captures import read_bytes, write_capture
from tests.support.secrets import found_in

PASSWORDS = {"alice": "alice-secret"}
SASL = ("--broker", ":9094")


@pytest.fixture(scope="module")
def recording(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Decompressed, since it is read many times."""
    data = read_bytes(corpus / "captures" / "apache-4.3-broker1.pcap.zst")
    assert b"alice-secret" in data
    return write_capture(tmp_path_factory.mktemp("recording") / "broker1.pcap", data)


def texts(recording: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[tuple[str, str]]:
    """What each form of output says: (form, text)."""
    csv = tmp_path / "csv"
    for form in (
        ["report", "--by", "client", "--csv", str(csv)],
        ["report", "--json"],
        ["show"],
        ["show", "--json", "--brief", *SASL],
        ["show", "--tree", "--hex", "--api", "SaslHandshake,SaslAuthenticate", *SASL],
        ["show", "--json", "--records", "--api", "SaslHandshake,SaslAuthenticate,Envelope", *SASL],
        ["show", "--tree", "--hex", "--records", "-n", "600", *SASL],
        [
            "show",
            "--tree",
            "--hex",
            "--api",
            "Envelope,AlterUserScramCredentials,IncrementalAlterConfigs,DescribeConfigs",
        ],
        ["records", "--json", *SASL],
    ):
        assert main([*form, str(recording)]) == 0
        out, err = capsys.readouterr()
        assert len(out) > 1000, form
        yield " ".join(form), out + err
    for path in csv.iterdir():
        yield path.name, path.read_text()


def test_no_password_is_in_any_output(recording: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for form, text in texts(recording, capsys, tmp_path):
        assert found_in(text, PASSWORDS) == [], form


def test_no_password_is_in_any_table(recording: Path) -> None:
    analysis = analyze(recording)
    for name in ("exchanges", "results", "connections", "files", "ledger"):
        table = getattr(analysis, name)
        for column in table.column_names:
            if any(kind in str(table.schema.field(column).type) for kind in ("string", "binary")):
                values = json.dumps([str(value) for value in set(map(str, table[column].to_pylist()))])
                assert found_in(values, PASSWORDS) == [], (name, column)


def test_the_password_is_there_when_it_is_asked_for(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form in (["--tree"], ["--hex"], ["--json"]):
        assert main(["show", *form, "--show-secrets", "--api", "SaslAuthenticate", *SASL, str(recording)]) == 0
        assert found_in(capsys.readouterr().out, PASSWORDS) == ["alice"], form
