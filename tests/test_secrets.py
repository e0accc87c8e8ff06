"""Secrets and payload that are on the wire are in no output, unless an option asks for them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkatap import analyze
from kafkatap.__main__ import main
from tests.support.secrets import PAYLOAD, SECRETS, found_in, write_secrets

ALL = {**SECRETS, **PAYLOAD}
#: Forms of output in which no secret may be: (arguments, whether payload may).
SHUT = [
    (["report"], False),
    (["report", "--by", "topic", "--ledger"], False),
    (["report", "--json"], False),
    (["show"], False),
    (["show", "--tree", "--hex"], False),
    (["show", "--tree", "--hex", "--stream", "--color", "always"], False),
    (["show", "--json"], False),
    (["show", "--json", "--stream", "--brief"], False),
    (["show", "--tree", "--hex", "--records"], True),
    (["show", "--json", "--records"], True),
    (["records"], True),
    (["records", "--json"], True),
    (["records", "--values", "none"], False),
]


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_secrets(tmp_path_factory.mktemp("secrets") / "secrets.pcap")


def told(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    code = main(list(map(str, arguments)))
    out, err = capsys.readouterr()
    assert code == 0, err
    return str(out + err)


def text_of(table: pa.Table) -> str:
    return json.dumps(table.to_pylist(), default=lambda v: v.decode("latin-1") if isinstance(v, bytes) else str(v))


@pytest.mark.parametrize(("arguments", "payload"), SHUT, ids=[" ".join(a) for a, _ in SHUT])
def test_what_is_printed(
    capture: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], payload: bool
) -> None:
    out = told(capsys, *arguments, capture)
    assert found_in(out, SECRETS if payload else ALL) == []
    assert len(out) > 200


def test_what_is_written(capture: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("csv", "parquet", "plots")]
    arguments = [f"--{folder.name}={folder}" for folder in folders]
    assert found_in(told(capsys, "report", *arguments, capture), ALL) == []
    files = [path for folder in folders for path in folder.iterdir()]
    assert {".csv", ".parquet", ".svg"} <= {path.suffix for path in files}
    for path in files:
        text = text_of(pq.read_table(path)) if path.suffix == ".parquet" else path.read_bytes().decode("latin-1")
        assert found_in(text, ALL) == [], path.name
    assert told(capsys, "records", "-o", tmp_path / "records.parquet", capture) is not None
    records = text_of(pq.read_table(tmp_path / "records.parquet"))
    assert found_in(records, SECRETS) == []
    assert found_in(records, PAYLOAD) == list(PAYLOAD)


def test_tables_of_the_library(capture: Path) -> None:
    analysis = analyze(capture)
    tables = {name: getattr(analysis, name) for name in ("exchanges", "results", "connections", "files", "ledger")}
    tables["records"] = analysis.records.drop_columns(["key", "value", "headers"])
    for name, table in tables.items():
        assert table.num_rows, name
        assert found_in(text_of(table), ALL) == [], name
    assert found_in(text_of(analysis.records), PAYLOAD) == list(PAYLOAD)
    assert found_in(json.dumps(list(analysis.messages())), ALL) == []
    assert found_in(json.dumps([table.rows for table in analysis.report().tables], default=str), ALL) == []


def test_secrets_are_shown_where_they_are_asked_for(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise the tests above could not fail."""
    # What no layout reads is seen among the bytes alone, and what was not captured nowhere.
    unread = {"cut-off", "newer-version", "trailing", "orphan"}
    tree = found_in(told(capsys, "show", "--tree", "--show-secrets", capture), ALL)
    assert set(tree) >= set(SECRETS) - unread - {"salt", "proof"}  # which are beyond the first bytes of long values
    body = found_in(told(capsys, "show", "--json", "--show-secrets", capture), ALL)
    assert set(body) >= set(SECRETS) - unread
    dumped = found_in(told(capsys, "show", "--hex", "--show-secrets", capture), SECRETS)
    assert dumped == list(SECRETS)
    for form in (["show", "--tree", "--records"], ["show", "--json", "--records"], ["records"], ["records", "--json"]):
        assert found_in(told(capsys, *form, capture), PAYLOAD) == list(PAYLOAD), form
    # Payload is no secret of that kind, and secrets are no payload.
    assert not set(tree) & set(PAYLOAD)


@pytest.mark.parametrize(
    "expression",
    [
        'request.AuthBytes ~ "a"',
        'SaslAuthenticate.request.AuthBytes == "a"',
        'response.AuthBytes ~ "."',
        'request.Upsertions.SaltedPassword ~ "a"',
        'request.Upsertions.Salt != "a"',
        'IncrementalAlterConfigs.request.Resources.Configs.Value ~ "^a"',
        'AlterConfigs.request.Resources.Configs.Value == "a"',
        'CreateTopics.request.Topics.Configs.Value in ("a", "b")',
        'DescribeConfigs.response.Results.Configs.Value ~ "a"',
        'DescribeConfigs.response.Results.Configs.Synonyms.Value ~ "a"',
        'response.Hmac ~ "a"',
        'DescribeDelegationToken.response.Tokens.Hmac ~ "a"',
        'PushTelemetry.request.Metrics ~ "a"',
        'Envelope.request.RequestData ~ "a"',
        'Produce.request.TopicData.PartitionData.Records ~ "a"',
        'Fetch.response.Responses.Partitions.Records ~ "a"',
    ],
)  # fmt: skip
def test_a_filter_is_no_oracle(capture: Path, capsys: pytest.CaptureFixture[str], expression: str) -> None:
    for command in ("show", "report", "records"):
        assert main([command, "-f", expression, str(capture)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert "^" in err.splitlines()[-1]


def test_the_search_finds_secrets_in_every_form() -> None:
    secret = SECRETS["plain"]
    raw = secret.encode()
    rows = range(0, 24, 16)
    dumped = "\n".join(
        f"  {at:08x}  {raw[at : at + 8].hex(' ')}  {raw[at + 8 : at + 16].hex(' '):<23}  ...." for at in rows
    )
    forms: list[Any] = [
        secret, f"x{secret[5:]}", secret[::-1], raw.hex(), raw[3:].hex(" "), repr(raw), dumped,
        base64.b64encode(b"\0alice\0" + raw).decode(), base64.b64encode(b"1" + raw).decode(), raw.hex(" ", 2),
        "".join(f"\\x{b:02x}" for b in raw), " ".join(secret),
    ]  # fmt: skip
    for form in forms:
        assert found_in(form, SECRETS) == ["plain"], form
    assert found_in("\n".join(SECRETS), ALL) == []


def test_payload_of_a_sample(samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = samples / "live-4.3.pcap.zst"
    assert main(["records", "--json", "--values", "hex", str(sample)]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    values = {bytes.fromhex(r["value"]["data"]).decode("latin-1") for r in records if (r["value"] or {}).get("data")}
    starts = {value[:24]: value[:24] for value in values if len(value) >= 24}
    assert starts
    assert found_in(told(capsys, "show", "--tree", "--hex", sample), starts) == []
    assert found_in(told(capsys, "show", "--tree", "--records", sample), starts) == list(starts)
