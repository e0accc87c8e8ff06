"""Counts of connections as rows: any number of runs add up to the counts of one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from kafkatap.reports.connection_columns import CONNECTION_ROW
from kafkatap.reports.connection_words import DECRYPTIONS, PROTOCOLS
from kafkatap.reports.counting.connection_counts import ConnectionCounts, count_connections
from kafkatap.reports.counting.connection_rows import (
    COLUMNS,
    connection_counts_of_rows,
    rows_of_connections,
    sum_connection_rows,
)
from kafkatap.reports.counting.count_rows import NameTable
from kafkatap.reports.tables import arrow_schema

STRINGS = (b"billing", b"a \\ b", b"\xff\xfe", "f\u00fcr".encode(), b"")
ADDRESSES = ("10.0.0.1", "::1", "10.0.0.2")


def connections(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = np.zeros(count, CONNECTION_ROW)
    for name in ("client_bytes", "broker_bytes", "client_retransmitted_packets", "broker_gap_bytes"):
        rows[name] = rng.integers(0, 1 << 40, count)
    for name in ("client_id", "software", "software_version"):
        rows[name] = rng.integers(-1, len(STRINGS), count)
    rows["client_ip"] = rng.integers(-1, len(ADDRESSES), count)
    rows["protocol"] = rng.integers(0, len(PROTOCOLS), count)
    rows["client_gaps"] = rng.integers(0, 2, count)
    rows["handshake_rtt_ns"] = rng.integers(-1, 1 << 30, count)
    rows["handshake_rtt_ns"][::7] = -1
    rows["tls_decryption"] = rng.integers(0, len(DECRYPTIONS), count)
    rows["tls_decrypted_bytes"] = rng.integers(0, 1 << 30, count)
    rows["tls_server_certificate"] = rng.integers(-1, len(STRINGS), count)
    rows["tls_server_certificate_end"] = rng.integers(0, 3, count)
    rows["tls_alert"], rows["tls_alert_by"] = rng.integers(-1, 120, count), rng.integers(-1, 2, count)
    return rows


def names_of(seed: int) -> NameTable:
    """The same names, with other numbers in each run."""
    names = NameTable()
    rng = np.random.default_rng(seed)
    for i in rng.permutation(len(STRINGS)):
        names.string(STRINGS[i])
    for i in rng.permutation(len(ADDRESSES)):
        names.address(ADDRESSES[i])
    return names


def meaning(counts: ConnectionCounts, names: NameTable) -> tuple[dict[object, list[int]], ...]:
    """The values, the round trips, and the values of the TLS table, of each key, with names for numbers."""
    keys = []
    for client, ip, software, version, protocol in counts.table.key_rows().tolist():
        texts = [names.strings[n] if n >= 0 else None for n in (client, software, version)]
        keys.append((*texts, names.addresses[ip] if ip >= 0 else None, protocol))
    owner, bucket, times = counts.rtts.of(0)
    rtts = {(keys[o], b): [n] for o, b, n in zip(owner.tolist(), bucket.tolist(), times.tolist(), strict=True)}
    tls = {}
    for key, values in zip(counts.tls.key_rows().tolist(), counts.tls.value_rows().tolist(), strict=True):
        decryption, ip, alert, by, broker, certificate, end = key
        ends = [names.addresses[n] if n >= 0 else None for n in (ip, broker)]
        tls[decryption, *ends, alert, by, names.strings[certificate] if certificate >= 0 else None, end] = values
    return dict(zip(keys, counts.table.value_rows().tolist(), strict=True)), rtts, tls


def renumbered(rows: np.ndarray, names: NameTable) -> np.ndarray:
    """Rows whose strings and addresses are numbered as in STRINGS and ADDRESSES, numbered by `names`."""
    made = rows.copy()
    for name in ("client_id", "software", "software_version", "tls_server_certificate"):
        made[name] = np.array([*map(names.string, STRINGS), -1])[rows[name]]
    for name in ("client_ip", "broker_ip"):
        made[name] = np.array([*map(names.address, ADDRESSES), -1])[rows[name]]
    return made


@pytest.mark.parametrize("runs", [1, 3])
def test_rows_add_up(runs: int) -> None:
    whole = connections(500, 3)
    plain = names_of(0)
    wanted = meaning(count_connections(renumbered(whole, plain)), plain)
    rows = []
    for run, part in enumerate(np.array_split(whole, runs)):
        names = names_of(run + 1)
        rows.append(rows_of_connections(count_connections(renumbered(part, names)), names))
    for table in (sum_connection_rows(rows), pa.concat_tables(rows), sum_connection_rows([sum_connection_rows(rows)])):
        assert table.schema == arrow_schema(COLUMNS)
        names = NameTable()
        assert meaning(connection_counts_of_rows(table, names), names) == wanted


def test_without_connections() -> None:
    rows = sum_connection_rows([])
    assert rows.schema == arrow_schema(COLUMNS)
    assert connection_counts_of_rows(rows, NameTable()).total("connections") == 0
    assert rows_of_connections(ConnectionCounts(), NameTable()).num_rows == 0


def test_the_size_of_sums_does_not_grow_with_connections() -> None:
    names = names_of(0)
    rows = rows_of_connections(count_connections(renumbered(connections(500, 3), names)), names)
    assert sum_connection_rows([rows] * 20).num_rows == rows.num_rows


@pytest.mark.parametrize(("measure", "bucket"), [("rtts", None), ("rtts", 5_000), ("bytes", 5)])
def test_a_wrong_bucket(measure: str, bucket: int | None) -> None:
    row = {"protocol": ["kafka"], "measure": [measure], "bucket": [bucket], "added": [1]}
    columns = {c.name: row.get(c.name, [None]) for c in COLUMNS}
    with pytest.raises(ValueError, match="wrong bucket"):
        connection_counts_of_rows(pa.table(columns, arrow_schema(COLUMNS)), NameTable())
