"""Lakes of damaged captures, and lakes whose files are damaged.

A job over any capture makes tables that balance and have the numbers of the capture's report. Whatever stands in the
files of a lake, `lake verify`, `report` and `compare` end with a declared exit code and print nothing that acts.
"""

from __future__ import annotations

import json
import random
import shutil
import zlib
from typing import Any

from kafkatap.library import UnreadableCaptureError
from tests.spark.jobs import run_job
from tests.wire.mutations import changed

from .capture_targets import scratch_folder
from .command_target import a_capture, checked_run
from .target import Target


def check_lake(data: bytes) -> None:
    """Run a job over a capture, compare its tables with the report, damage a file of theirs and read them again."""
    chance = random.Random(zlib.crc32(data))
    capture, lake = scratch_folder() / "of-lake.pcap", scratch_folder() / "lake"
    capture.write_bytes(data)
    shutil.rmtree(lake, ignore_errors=True)
    try:
        run_job([capture], lake, split_size=chance.choice((None, max(1_000, len(data) // 3))))
    except (ValueError, UnreadableCaptureError):  # nothing of it can be read
        refused = True
    else:
        refused = False
    if refused:
        code, _ = checked_run(("report", str(capture)))
        assert code != 0, "a job refuses what report reads"
        return
    if not (lake / "files" / "_delta_log").is_dir():
        return
    code, _ = checked_run(("lake", "verify", str(lake)))
    assert code in (0, 3), code
    code, found = checked_run(("report", str(lake), "--json"))
    _, wanted = checked_run(("report", str(capture), "--json"))
    day = "2026-11-21"
    if found and wanted:
        day = (json.loads(wanted)["capture"]["first"] or day)[:10]
        assert _totals(json.loads(found)) == _totals(json.loads(wanted)), "a lake's numbers"
    for path in chance.sample(sorted(path for path in lake.rglob("*") if path.is_file()), chance.choice((1, 1, 2))):
        path.write_bytes(changed(path.read_bytes(), chance)) if chance.random() < 0.9 else path.unlink()
    for arguments in (
        ("lake", "verify", str(lake), *chance.choice(((), ("--json",)))),
        ("report", str(lake), *chance.choice(((), ("--json",), ("--sections", "all"), ("--by", "topic")))),
        ("compare", str(lake), "--before", day, "--after", day, "--one-sided"),
    ):
        code, _ = checked_run(arguments)
        assert code in (0, 1, 2, 3), (arguments, code)


def _totals(report: dict[str, Any]) -> dict[str, int]:
    """How many answers each API has."""
    return {row["api"]: row["count"] for row in report["reports"]["latency"]}


LAKE_TARGETS = (Target("lakes", a_capture, check_lake, seconds=10.0),)
