"""Which of the named captures is a lake: the folder of `kafkatap spark`. No import that a report of captures does not
need."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection, Iterator, Sequence

#: What `kafkatap spark` leaves in each lake (`spark.lake_options.NAME`).
_MARK = "lake.json"


def chosen_lake(named: Sequence[str]) -> str | None:
    """The lake among captures, local or in a store. None if there is none. A store is asked only for a name that is
    alone, and that has no dot: captures have a suffix."""
    for path in named:
        if _is_local_lake(path):
            return path
    if len(named) != 1 or "://" not in named[0]:
        return None
    [uri] = named
    has_suffix = "." in uri.partition("?")[0].rstrip("/").rpartition("/")[2]
    return uri if "*" not in uri and not has_suffix and _is_lake(uri) else None


def refuse_lake(named: Sequence[str], command: str) -> None:
    """ValueError if one is a local lake, of which only `report` and `compare` make something."""
    for path in named:
        if _is_local_lake(path):
            raise ValueError(
                f"{path}: this is the folder of `kafkatap spark`, which {command} cannot read: it needs captures. "
                f"`kafkatap report {path}` reports it"
            )
        if _is_local_table(path):
            raise ValueError(
                f"{path}: this is one table of `kafkatap spark`, and no capture; name the folder of all tables: "
                f"`kafkatap report {os.path.dirname(os.path.abspath(path))}`"
            )


def other_options(
    options: argparse.Namespace, add_arguments: Callable[[argparse.ArgumentParser], None], answered: Collection[str]
) -> Iterator[str]:
    """The options of a command that were given, though they do not apply to a lake. `answered`: those that do, by their
    names in `options`."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for action in parser._actions:
        given = getattr(options, action.dest, action.default)
        if action.option_strings and action.dest not in answered and given != action.default:
            yield action.option_strings[-1]


def check_no_cluster(options: argparse.Namespace) -> None:
    """ValueError if --cluster is given for captures."""
    if options.cluster is not None:
        raise ValueError("--cluster is for a folder of `kafkatap spark`; name the captures of that cluster instead")


def _is_local_lake(path: str) -> bool:
    """Whether a folder is a lake. Earlier versions of kafkatap left no lake.json."""
    return "://" not in path and (
        os.path.isfile(os.path.join(path, _MARK)) or _is_local_table(os.path.join(path, "exchanges"))
    )


def _is_local_table(path: str) -> bool:
    return "://" not in path and os.path.isdir(os.path.join(path, "_delta_log"))


def _is_lake(uri: str) -> bool:
    """Whether a folder of a store is a lake. False if it cannot be read: reading captures says why."""
    try:
        from ..spark.lake_report import is_lake

        return is_lake(uri)
    except (ImportError, OSError, ValueError):
        return False
