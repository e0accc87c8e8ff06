"""How good captures are, and which capture command would do better: `kafkatap doctor`.

>>> from kafkatap import examine
>>> examine("samples/live-4.3.pcap.zst").table("findings").rows
[]

observed          one pass over captures that gathers what checks read
packet_checks     packets: lengths, times, order; clock_steps: steps of the clock; capture_heads: interfaces
file_checks, stream_checks, content_checks
                  the checks
finding           one finding
capture_commands  better commands, made from what the captures show
diagnosis         the checks by name, and the tables; diagnosis_text: their text

It decodes no more than a report does, and changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..engine.read_options import ReadOptions

if TYPE_CHECKING:
    from kafkatap.reports.model import Report

__all__ = ["examine"]

Path = str | os.PathLike[str]


def examine(
    captures: Path | Iterable[Path],
    *,
    ports: Iterable[int] = (),
    definitions: Path | Iterable[Path] | None = None,
    keylog: Path | Iterable[Path] | None = None,
) -> Report:
    """Examine captures; return a report with the tables `findings`, `checks`, `gap_connections`, `interfaces`,
    `capture_point`, `capture_commands` and `files` (docs/doctor.md).

    The arguments are those of `kafkatap.analyze`. A capture that cannot be read is a finding. OSError if a file cannot
    be opened or there is none.
    """
    from ..captures.paths import find_captures
    from .diagnosis import diagnose
    from .observed import read_captures

    named = [captures] if isinstance(captures, (str, os.PathLike)) else list(captures)
    known = None
    if definitions is not None:
        from ..engine.engine import open_definitions

        known = open_definitions(definitions)
    key_log = None
    if keylog is not None:
        from ..engine.tls.key_log_files import open_key_logs

        key_log = open_key_logs([keylog] if isinstance(keylog, (str, os.PathLike)) else keylog)
    paths = find_captures(os.fspath(c) for c in named)
    return diagnose(read_captures(paths, ReadOptions(tuple(ports), known, key_log=key_log)))
