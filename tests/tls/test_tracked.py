"""What becomes of the records of a tracked connection: the gaps for records that are missing."""

from __future__ import annotations

import numpy as np

from kafkatap.engine.tls.chunk_rows import ChunkRows
from kafkatap.engine.tls.record_tables import DECRYPTED, ROW_BROKEN, ROW_RECORD, RecordRow
from kafkatap.engine.tls.tracked import Tracked
from kafkatap.reassembly.dtypes import CHUNK, CHUNK_GAP
from tests.tls.crafted import Crafted13
from tests.tls.talk import SERVER, see

#: What TLS 1.3 with AES-GCM adds to each record.
OVERHEAD = 5 + 1 + 16


def row(record: bytes, kind: int = ROW_RECORD) -> RecordRow:
    return RecordRow(0, 1, 1, 0, 0, len(record), 0, 0, 0, -1, SERVER, record[0], 0, kind, 0, len(record), 0)


def test_records_that_failed_count_among_those_that_are_lost() -> None:
    """A broken record, one that was damaged, and then records with another key: how many are missing is not known."""
    crafted = Crafted13()
    crafted.hello()
    crafted.chat(2)
    first = len(crafted.records)
    for _ in range(2):
        crafted.send(SERVER, bytes(500))
    crafted.update(SERVER)
    crafted.send(SERVER, bytes(700))
    broken, damaged, _, last = (record for _, record in crafted.records[first:])
    tracked = Tracked(0, 0, see(crafted.records[:first], crafted.key_log).session, False, 0)
    tracked.mode = DECRYPTED
    made = ChunkRows()
    tracked.lose(row(broken, ROW_BROKEN))
    tracked.decrypt(row(damaged), memoryview(damaged[:-1] + bytes((damaged[-1] ^ 1,))), made)
    assert not len(made)
    tracked.decrypt(row(last), memoryview(last), made)
    chunks, _ = made.merged(np.zeros(0, CHUNK), np.zeros(0, bool), np.zeros(0, np.uint8))
    gaps = chunks[chunks["kind"] == CHUNK_GAP]
    assert gaps["length"].tolist() == [2 * 500]
    assert chunks["length"].tolist() == [2 * 500, 700]
    assert len(broken) == 500 + OVERHEAD
