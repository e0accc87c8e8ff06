"""Commands that show more of a finding, as a user can paste them into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from . import units
from .batch import LIVE, Context
from .model import ReportTable

#: The placeholder for the names of the captures at the end of a command: `with_captures` replaces it.
CAPTURE = "CAPTURE"
_READ = frozenset(("report", "show", "records", "extract", "compare", "doctor", "upgrade-check"))
_REPORTS = frozenset(("report",))
#: The options of a run that change what it finds, beside those of its selection, and the commands that have them.
KEPT = {
    "utc": _READ, "port": _READ, "definitions": _READ, "keylog": _READ, "hosts": _READ,
    "max-frame": _READ, "max-held": _READ,
    "max-connections": _READ, "max-waiting": _READ, "max-names": _READ,
    "late": _REPORTS, "quota": _REPORTS, "window": _REPORTS, "zones": _REPORTS,
    "release": _REPORTS, "request-log": frozenset(("report",)), "cluster": frozenset(("report", "compare")),
}  # fmt: skip
#: Options that a command accepts only together with the section that reads them.
OF_SECTIONS = {
    "quota": "throttle", "window": "throttle", "zones": "zones", "release": "upgrade", "request-log": "broker-times",
}  # fmt: skip
#: Captures whose names together are longer than this are not named.
_LONGEST_NAMES = 100


def command(
    context: Context, selected: str | None, options: tuple[tuple[str, str | None], ...], name: str = "report"
) -> str:
    """`kafkatap report --by client --api Produce CAPTURE`; "" of a live capture.

    `selected`: the selection of the report, which the command keeps, as it does `context.options`. `options`: names of
    options and values, "" for an option without one. An option without a value that a shell can show (None), or one
    that the selection has already, is left out; of two filters both must hold.
    """
    if any(f.kind == LIVE for f in context.files):
        return ""  # what was captured live cannot be read again
    more = next((value for option, value in options if option == "filter"), None)
    if selected and more:
        selected = _filtered(selected, more)
    parts = ["kafkatap", name, *([selected] if selected else [])]
    for option, value in options:
        if value is not None and f"--{option} " not in f"{selected} ":
            parts.append(_written(option, value))
    sections = ",".join(value or "" for option, value in options if option == "sections").split(",")
    parts += kept_words(context.options, name, sections)
    return " ".join((*parts, CAPTURE))


def _filtered(selected: str, more: str) -> str:
    """A selection whose filter, if it has one, is stricter."""
    words = shlex.split(selected)
    if "--filter" not in words:
        return selected
    at = words.index("--filter") + 1
    if words[at] == more:
        return selected
    words[at] = f"({words[at]}) and {more if ' or ' not in more else f'({more})'}"
    return " ".join(map(units.shell_word, words))


def kept_words(options: Sequence[tuple[str, str]], name: str, sections: Sequence[str] = ()) -> list[str]:
    """The `options` of a run (KEPT) that the command `name` has too, as words for a shell. `sections`: those that it
    names."""
    return [
        _written(option, value)
        for option, value in options
        if name.split()[0] in KEPT[option] and is_showable(value)
        if option not in OF_SECTIONS or OF_SECTIONS[option] in sections
    ]


def _written(option: str, value: str) -> str:
    dashes = f"-{option}" if len(option) == 1 else f"--{option}"
    word = units.shell_word(value) if value else ""
    return f"{dashes}={word}" if value.startswith("-") else f"{dashes} {word}".rstrip()


def with_captures(text: str, captures: Sequence[str]) -> str:
    """A command with the names of captures instead of CAPTURE, if they are few and can be copied from a terminal."""
    names = " ".join(map(units.shell_word, captures))
    if not names or len(names) > _LONGEST_NAMES or "-" in captures or not is_showable(names):
        return text
    return text.removesuffix(CAPTURE) + names if text.endswith(f" {CAPTURE}") else text


def with_captures_in(table: ReportTable, captures: Sequence[str]) -> ReportTable:
    """A table whose commands name the captures."""
    at = next((i for i, column in enumerate(table.columns) if column.name == "command"), None)
    if at is None or not captures:
        return table
    rows = [
        (*row[:at], None if row[at] is None else with_captures(str(row[at]), captures), *row[at + 1 :])
        for row in table.rows
    ]
    return table.replace(rows=rows)


def is_showable(text: str) -> bool:
    """Whether a terminal shows a text as it is, so that it can be copied."""
    return text.isprintable() and "\\" not in text
