"""A progress bar on standard error, drawn by rich, shown only once the work has taken half a second."""

from __future__ import annotations

import time
from typing import Any

PATIENCE = 0.5


class Bar:
    """`update(bytes read so far)`; `total` None where the input's length is not known."""

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._begun = time.monotonic()
        self._progress: Any = None
        self._task: Any = None

    def update(self, done: int) -> bool:
        """Show where we are. Returns False: it never ends the reading."""
        if self._progress is None and time.monotonic() - self._begun > PATIENCE:
            self._show()
        if self._progress is not None:
            self._progress.update(self._task, completed=done)
        return False

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._progress = Progress(
            TextColumn("reading"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task("reading", total=self._total)
        self._progress.start()

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
