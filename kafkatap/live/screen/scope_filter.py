"""Filter expressions for parts of the traffic."""

from __future__ import annotations

import re

from .breakdown import Scope

_LONG_POLL = " (long poll)"
#: APIs of which long polls have a row of their own.
_POLL = ("Fetch", "ShareFetch")


def scope_filter(scope: Scope, ends: str = "") -> str:
    """The expression that selects a part of the traffic. `ends`: of its connection, if it has one: CLIENT to BROKER."""
    return " and ".join(
        ends_filter(ends.split(" to ")[0]) if kind == "connection" else _part(kind, None if name is None else str(name))
        for kind, name in scope
    )


def ends_filter(client: str) -> str:
    """The expression that selects the connections of a client's ADDRESS:PORT."""
    return f"client == {quoted(client)}"


def _part(kind: str, name: str | None) -> str:
    if name is None:
        return f"{'client_id' if kind == 'client' else kind} == null"
    if kind == "api":
        api = name.removesuffix(_LONG_POLL)
        unknown = re.fullmatch(r"API (-?\d+)", api)
        polls = "" if api not in _POLL else " and long_poll" if name.endswith(_LONG_POLL) else " and not long_poll"
        return f"api == {unknown[1] if unknown else api}{polls}"
    if kind == "error":
        return f"error == {name.split(' ')[0]}"
    return f"{'client_id' if kind == 'client' else kind} == {quoted(name)}"


def quoted(text: str) -> str:
    """A text as the grammar of filters has it."""
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(c: str) -> str:
    if c in '\\"':
        return "\\" + c
    return c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c
