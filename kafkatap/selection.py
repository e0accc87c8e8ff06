"""What the options of a command ask for, as one condition on exchanges and one span of time."""

from __future__ import annotations

import argparse
import fnmatch
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkatap.reports.filters import ALWAYS, NEVER

from .commands.console import moment_of
from .commands.values import When, api_keys

if TYPE_CHECKING:
    from kafkatap.dissector.layouts.overlay import Definitions
    from kafkatap.reports.expressions import Condition


def asked_condition(options: argparse.Namespace, definitions: Definitions | None = None) -> Condition | None:
    """The condition that --filter, --api, --client, --topic and --broker add up to; None where nothing is left out.

    ValueError (of which `ExpressionError` is one) says what is wrong with them.
    """
    parts = _parts(options)
    if not parts and not options.filter:
        return None
    from kafkatap.reports.expressions import Condition, parse_expression

    messages = None if definitions is None else definitions.messages
    if options.filter:
        parse_expression(options.filter, messages)  # by itself, so that a mistake is told in the text as it was written
        parts.append(f"({options.filter})")
    return Condition(parse_expression(" and ".join(parts), messages))


def filter_condition(options: argparse.Namespace, definitions: Definitions | None = None) -> Condition | None:
    """The condition of --filter alone; ValueError as for `asked_condition`."""
    if not options.filter:
        return None
    from kafkatap.reports.expressions import Condition, parse_expression

    return Condition(parse_expression(options.filter, None if definitions is None else definitions.messages))


def incident_condition(
    options: argparse.Namespace, before: Condition | None, definitions: Definitions | None = None
) -> Condition | None:
    """The condition of --on, in a run that has another one before; ValueError as for `asked_condition`."""
    if options.on is None:
        return None
    if options.write_pcap is None:
        raise ValueError("--on tells when packets are written: it needs --write-pcap FILE")
    from kafkatap.reports.expressions import Condition, parse_expression

    messages = None if definitions is None else definitions.messages
    return Condition(parse_expression(options.on, messages), before)


def _parts(options: argparse.Namespace) -> list[str]:
    names = [name for group in options.api or () for name in group]
    parts = [f"api in ({', '.join(map(str, sorted(api_keys(names))))})"] if names else []
    for column in ("client", "topic"):
        globs = getattr(options, column)
        if globs:
            parts.append(f"{column} ~ {_pattern(globs)}")
    if options.broker:
        parts.append(f"broker in ({', '.join(map(_quoted, options.broker))})")
    return parts


def _pattern(globs: Sequence[str]) -> str:
    """As a regular expression in quotes, in which backslashes stay as they are."""
    return '"\\A(?:' + "|".join(fnmatch.translate(g) for g in globs).replace('"', '\\"') + ')"'


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def asked_window(options: argparse.Namespace) -> Callable[[int], tuple[int, int]] | None:
    """From the first packet's time to the span that --from and --to ask for (ns since the epoch, the end not in it)."""
    start: When | None = options.start
    end: When | None = options.end
    if start is None and end is None:
        return None
    return lambda first: (moment_of(start, first, ALWAYS), moment_of(end, first, NEVER))


def asked(options: argparse.Namespace) -> str | None:
    """The options that leave something out, as they were given; None where nothing is left out."""
    parts = []
    for name in ("from", "to", "client", "topic", "broker", "api", "only", "filter"):
        value = getattr(options, {"from": "start", "to": "end"}.get(name, name), None)
        if isinstance(value, When):
            parts.append(f"--{name} {value.text}")
        elif isinstance(value, str):
            parts.append(f"--{name} '{value}'" if name == "filter" else f"--{name} {value}")
        for each in value if isinstance(value, list) else ():
            parts.append(f"--{name} {','.join(each) if isinstance(each, list) else each}")
    return " ".join(parts) or None
