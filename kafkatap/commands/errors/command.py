"""`kafkatap errors`: Kafka's error codes, what they mean, and which APIs of captures had them."""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kafkatap.dissector.kafka.error_codes import ErrorCode, code_of, error_codes, error_name
from kafkatap.reports.model import as_number
from kafkatap.reports.rendering.text import Line, render_table, write_lines
from kafkatap.reports.sections.error_codes import meanings

from ...installation import own_version

SCHEMA_VERSION = 1
_WIDTH = 100


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from ...complaints import complain, reason_of
    from ..exit_codes import DONE, WRONG

    try:
        codes, captures = _sorted_words(options.words)
        apis = _apis_of(captures) if captures else None
    except (ValueError, OSError) as error:
        complain(reason_of(error))
        return WRONG
    chosen = codes or sorted(error_codes() if apis is None else apis)
    if options.json:
        whole = {"schema_version": SCHEMA_VERSION, "kafkatap": own_version()}
        json.dump({**whole, "errors": [_plain(code, apis) for code in chosen]}, sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        color = None if options.color == "auto" else options.color == "always"
        as_list = not options.words
        write_lines(lambda width: _table(width) if as_list else _lines(chosen, apis, width), sys.stdout, color=color)
    sys.stdout.flush()
    return DONE


def _sorted_words(words: Sequence[str]) -> tuple[list[int], list[str]]:
    """Codes and captures. ValueError for a word that is neither."""
    codes, captures = list[int](), list[str]()
    for word in words:
        code = _number(word)
        if code is not None:
            codes.append(code)
        elif os.path.exists(word) or word == "-":
            captures.append(word)
        else:
            raise ValueError(_unknown(word))
    return codes, captures


def _number(word: str) -> int | None:
    """An error code by its number (an int16) or name."""
    if word.removeprefix("-").isdecimal() and word.isascii():
        return int(word) if len(word) <= 6 and -(1 << 15) <= int(word) < 1 << 15 else None
    return code_of(word)


def _unknown(word: str) -> str:
    from kafkatap.reports.expressions.expression_error import suggestion

    near = suggestion(word.replace("-", "_"), (each.name for each in error_codes().values()))
    return f"no error is called {word!r}{near or ', and there is no capture of this name'}"


def _apis_of(captures: Sequence[str]) -> dict[int, Counter[str]]:
    """By error code of captures, how often each API had it."""
    from ...library import analyze

    found: dict[int, Counter[str]] = {}
    for row in analyze(captures).report(sections=["errors"])["error_totals"].named_rows():
        of_code = found.setdefault(int(as_number(row["code"])), Counter())
        of_code[str(row["api"])] += int(as_number(row["count"]))
    return found


def _plain(code: int, apis: Mapping[int, Counter[str]] | None) -> dict[str, object]:
    """A code for JSON. What is not known of codes outside Kafka's table is null."""
    each = error_codes().get(code)
    return {
        "code": code,
        "name": None if each is None else each.name,
        "old_names": [] if each is None else list(each.old_names),
        "since": None if each is None else each.since,
        "retriable": None if each is None else each.is_retriable,
        "retriable_changed": None if each is None else each.retriable_changed or None,
        "meaning": None if each is None else each.meaning,
        "setting": None if each is None else each.setting or None,
        "remedy": None if each is None else each.remedy or None,
        "apis": None if apis is None else [{"api": a, "count": n} for a, n in apis.get(code, Counter()).most_common()],
    }


def _table(width: int | None) -> Iterator[Line]:
    yield from render_table(meanings(error_codes()), width, 0, True)


def _lines(codes: Sequence[int], apis: Mapping[int, Counter[str]] | None, width: int | None) -> Iterator[Line]:
    """A paragraph for each code."""
    if not codes:
        yield [("no error codes", "")]
    for n, code in enumerate(codes):
        if n:
            yield []
        each = error_codes().get(code)
        yield [(error_name(code), "bold"), ("" if each is None else f"  {code}", "cyan")]
        texts = ["not in Kafka's table of error codes"] if each is None else list(_sentences(each))
        if apis is not None:
            had = [f"{api} {count:,}" for api, count in apis.get(code, Counter()).most_common()]
            texts.append(f"in these captures: {', '.join(had) or 'none'}")
        for text in texts:
            yield from ([(f"  {part}", "")] for part in textwrap.wrap(text, min(width or _WIDTH, _WIDTH) - 2))


def _sentences(each: ErrorCode) -> Iterator[str]:
    yield each.meaning
    if each.remedy:
        yield each.remedy + (f" Settings: {each.setting}." if each.setting else "")
    may = "a client may retry" if each.is_retriable else "a client may not retry"
    before = "may not" if each.is_retriable else "could"
    yield may + (f" since {each.retriable_changed}; before, it {before}" if each.retriable_changed else "")
    old = f"; earlier names: {', '.join(each.old_names)}" if each.old_names else ""
    yield f"since Kafka {each.since}{old}"
