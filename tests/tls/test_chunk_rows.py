"""The order of the chunks that the TLS layer makes."""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.dtypes import TLS_VERSIONS
from kafkatap.dissector.framing.tables import FROM_TLS
from kafkatap.engine.tls.chunk_rows import ChunkRows
from kafkatap.engine.tls.record_tables import ROW, RecordRow
from kafkatap.reassembly.dtypes import CHUNK, CHUNK_DATA, CHUNK_GAP, FROM_HELD
from kafkatap.reports.tls_names import TLS_1_2, TLS_1_3


def test_records_gaps_and_plain_bytes_of_one_chunk_stay_in_order() -> None:
    """Records that are added together lie between what was added one by one before and after each of them."""
    made = ChunkRows()
    rows = np.zeros(4, ROW)
    rows["place"], rows["seq"], rows["slot"] = (3, 3, 3, 2), (0, 0xFFFFFFFE, 30, 40), (0, 0, 1, 0)
    rows["ts"], rows["packet"], rows["direction"] = (10, 11, 12, 13), (1, 2, 3, 4), (0, 0, 1, 0)
    plain: list[int] = []
    record = RecordRow._make(rows[0].tolist())
    made.add_gap(record, 7, 0, 100)
    plain += 1, made.used, 20, 5, TLS_1_3
    made.used += 20
    made.add_gap(record, 7, 0, 200)
    made.add_plain(record, 7, 0, 30, TLS_1_2)
    plain += 3, made.used, 0, 5, TLS_1_3  # without data
    plain += 2, made.used, 40, 5, TLS_1_2
    made.used += 40
    made.add_gap(record, 7, 0, 300)
    plain += 3, made.used, 50, 5, TLS_1_3
    made.used += 50
    made.add_records(rows, plain, np.array([7, 8], np.int32))
    stays = np.zeros(4, CHUNK)
    stays["length"] = (1, 2, 3, 4)
    chunks, _ = made.merged(stays, np.array([True, True, True, False]), np.zeros(0, np.uint8))
    assert len(made) == 7
    assert chunks["length"].tolist() == [1, 2, 50, 3, 100, 20, 200, 30, 40, 300]
    data = chunks[(chunks["source"] == FROM_HELD) & (chunks["kind"] == CHUNK_DATA) & (chunks["length"] >= 20)]
    assert data["at"].tolist() == [90, 0, 20, 50]
    assert data["seq"].tolist() == [45, 3, 0, 35]
    assert data["connection"].tolist() == [7, 7, 7, 8]
    assert data["packet"].tolist() == [4, 2, 1, 3]
    assert data["direction"].tolist() == [0, 0, 0, 1]
    versions = [TLS_VERSIONS[opening - FROM_TLS] for opening in data["opening"].tolist()]
    assert versions == ["TLS 1.3", "TLS 1.3", "TLS 1.2", "TLS 1.2"]
    assert (chunks["kind"] == CHUNK_GAP).sum() == 3
