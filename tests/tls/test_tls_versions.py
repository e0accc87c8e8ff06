"""The TLS version of exchanges: in the table, in filters and in `show`, beside what the endpoints used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkatap import analyze
from tests.cli.running import kafkatap
from tests.cli.test_show import show_validator
from tests.support.captures import PcapRecords, read_bytes
from tests.tls.real_endpoints import FOLDER, by_client, truth

MATRIX = FOLDER / "matrix.pcap.zst"
KEYS = FOLDER / "matrix.keys.log"
VERSIONS = {"TLSv1.2": "TLS 1.2", "TLSv1.3": "TLS 1.3"}
#: The versions by the client's ports in front of the terminator, and None behind it.
EXPECTED: dict[int, str | None] = {}
for each in truth("matrix")["connections"]:
    if "back" in each:
        EXPECTED |= {each["front"]: VERSIONS[each["version"]], each["back"]: None}


def test_exchanges_have_the_version_of_their_connection() -> None:
    seen = {port: {row["tls_version"] for row in rows} for port, rows in by_client("matrix", "matrix").items()}
    assert seen.keys() <= EXPECTED.keys()
    assert seen == {port: {EXPECTED[port]} for port in seen}
    assert {version for versions in seen.values() for version in versions} == {None, "TLS 1.2", "TLS 1.3"}


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("tls", {"TLS 1.2", "TLS 1.3"}),
        ("not tls", {None}),
        ("tls == null", {None}),
        ('tls == "TLS 1.2"', {"TLS 1.2"}),
        ('tls and tls_version != "TLS 1.2"', {"TLS 1.3"}),
    ],
)
def test_filters_select_by_it(text: str, versions: set[str | None]) -> None:
    table = analyze(MATRIX, keylog=KEYS, filter=text).exchanges
    assert set(table["tls_version"].to_pylist()) == versions
    wanted = [row for rows in by_client("matrix", "matrix").values() for row in rows if row["tls_version"] in versions]
    assert sorted(table["exchange"].to_pylist()) == sorted(row["exchange"] for row in wanted)


def test_what_was_not_decrypted_is_not_selected() -> None:
    assert analyze(MATRIX, filter="tls").exchanges.num_rows == 0
    assert set(analyze(MATRIX).exchanges["tls_version"].to_pylist()) == {None}


def test_connections_without_a_handshake(tmp_path: Path) -> None:
    """Only TLS 1.3 can be decrypted from the middle on."""
    path = tmp_path / "cut.pcap"
    records = PcapRecords(read_bytes(FOLDER / "libraries.pcap.zst"))
    path.write_bytes(records.keep(range(7 * len(records) // 10, len(records))))
    table = analyze(path, keylog=FOLDER / "libraries.keys.log")
    began = {row["connection"] for row in table.connections.to_pylist() if row["tls_ja4"] is None}
    middle = [row["tls_version"] for row in table.exchanges.to_pylist() if row["connection"] in began]
    assert len(middle) > 50
    assert set(middle) == {"TLS 1.3"}


def test_show_says_what_was_decrypted() -> None:
    for options, ending in ((["--tree"], True), ([], False), (["--hex"], False)):
        shown = kafkatap("show", *options, "--utc", "--keylog", KEYS, MATRIX, COLUMNS="400").out
        heads = [line for line in shown.splitlines() if " → " in line or " ← " in line]
        assert len(heads) > 3_000
        for line in heads:
            version = EXPECTED[int(line.split()[2].rpartition(":")[2])]
            assert line.endswith(f"  {version}, decrypted") == (ending and version is not None), line


@pytest.mark.parametrize("options", [[], ["--brief"]])
def test_show_as_json_has_it(options: list[str]) -> None:
    validator = show_validator()
    found = set()
    for line in kafkatap("show", "--json", *options, "--keylog", KEYS, MATRIX).out.splitlines():
        message = json.loads(line)
        version = EXPECTED[int(message["client"].rpartition(":")[2])]
        assert message.get("tls_version") == version
        assert ("tls_version" in message) == (version is not None)
        if version not in found:
            validator.validate(message)
            found.add(version)
    assert len(found) == 3
