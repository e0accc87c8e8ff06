"""Whether a report is of a lake: no Spark in it, and no import that a report of captures does not need."""

from __future__ import annotations

import argparse
import os

#: What `kafkatap spark` leaves in each lake (`spark.lake_options.NAME`).
_MARK = "lake.json"


def chosen_lake(options: argparse.Namespace) -> str | None:
    """The lake among the captures, local or in a store. None if there is none."""
    for path in options.captures:
        if "://" in path:
            if path.endswith("/") and len(options.captures) == 1 and _is_lake(path):
                return str(path)
        elif os.path.isfile(os.path.join(path, _MARK)):
            return str(path)
    return None


def _is_lake(uri: str) -> bool:
    """Whether a folder of a store is a lake. False if it cannot be read: reading captures says why."""
    try:
        from ...spark.lake_report import is_lake

        return is_lake(uri)
    except (ImportError, OSError, ValueError):
        return False
