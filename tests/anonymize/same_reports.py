"""Compares two reports that are to be the same but for names.

Numbers, times and flags of a row have to be equal. A text of the one report has to be that of the other with some of
its names, addresses or words replaced by their pseudonyms. Rows may come in another order, as ties are ordered by name.
"""

from __future__ import annotations

import base64
import re
from collections import defaultdict
from typing import Any

from kafkatap.anonymize.names import Names

_PIECES = re.compile(r"[0-9A-Za-z\x80-\U0010ffff]+|[^0-9A-Za-z\x80-\U0010ffff]+")
#: Of two clients with as many errors, the one is named that comes first by name.
_TIE = re.compile(r" 50 % to [^ ;]+")
#: Pieces of names: they cannot be mapped.
_CUT_NAMES = ("member_prefix",)
#: Columns of the kafkatap that wrote a file, or of the file.
_OF_FILES = ("bytes", "file", "files", "path", "kind", "link_types", "drops")
Differences = list[str]


def differences(old: Any, new: Any, names: Names, where: str = "") -> Differences:
    """The places where two reports, as JSON, differ beyond names."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = [] if old.keys() == new.keys() else [f"{where}: other keys"]
        is_tie = _TIE.search(str(old.get("text"))) is not None
        for key in old.keys() & new.keys():
            if key == "client_id" and is_tie:
                continue
            if key not in _CUT_NAMES and not (where == ".capture" and key in _OF_FILES) and key != "files":
                found += differences(old[key], new[key], names, f"{where}.{key}")
        return found
    if isinstance(old, list) and isinstance(new, list):
        return _list_differences(old, new, names, where)
    if isinstance(old, str) and isinstance(new, str):
        return [] if are_alike(old, new, names) else [f"{where}: {old!r} became {new!r}"]
    return [] if old == new else [f"{where}: {old!r} became {new!r}"]


#: The words of a broker are a text for people.
_QUOTE = re.compile(r'; the broker says ".*?"(?=;|$)')


def are_alike(old: str, new: str, names: Names) -> bool:
    """Whether `new` is `old` with some names replaced by their pseudonyms."""
    old, new = (_TIE.sub("", text) for text in (_QUOTE.sub("", old), new))
    if old == new or names.text(old) == new:
        return True
    if new == "x" * len(old) or _as_uuid(old, names) == new:  # a text for people, or the id of a topic
        return True
    if ", " in old:
        left = new.split(", ")
        for name in old.split(", "):
            found = next((other for other in left if are_alike(name, other, names)), None)
            if found is None:
                return False
            left.remove(found)
        return not left
    words, others = old.split(" "), new.split(" ")
    if len(words) > 1:
        return len(words) == len(others) and all(are_alike(a, b, names) for a, b in zip(words, others, strict=True))
    address = re.fullmatch(r"(\(?/?)(.+?)(:[0-9]+)?([,;.)]*)", old)
    if address and new == f"{address[1]}{names.text(address[2])}{address[3] or ''}{address[4]}":
        return True
    pieces, other_pieces = _PIECES.findall(old), _PIECES.findall(new)
    return len(pieces) == len(other_pieces) and all(
        a == b or names.text(a) == b for a, b in zip(pieces, other_pieces, strict=True)
    )


def _as_uuid(text: str, names: Names) -> str | None:
    """The pseudonym of the text of a uuid in base 64; None for what is none."""
    try:
        raw = base64.urlsafe_b64decode(text + "==")
    except ValueError:
        return None
    return base64.urlsafe_b64encode(names.uuid(raw)).decode().rstrip("=") if len(raw) == 16 else None


def _list_differences(old: list[Any], new: list[Any], names: Names, where: str) -> Differences:
    if len(old) != len(new):
        return [f"{where}: {len(old)} rows became {len(new)}"]
    left: dict[str, list[Any]] = defaultdict(list)
    for row in new:
        left[_shape(row)].append(row)
    found = []
    for row in old:
        alike = left[_shape(row)]
        for place, other in enumerate(alike):
            if not differences(row, other, names):
                del alike[place]
                break
        else:
            found.append(f"{where}: no row like {row!r}; left: {alike[:1]!r}")
    return found


def _shape(value: Any) -> str:
    """What has to be equal in two rows."""
    if isinstance(value, dict):
        return ",".join(f"{key}={_shape(value[key])}" for key in sorted(value) if key not in _CUT_NAMES)
    if isinstance(value, list):
        return f"[{len(value)}]"
    return "text" if isinstance(value, str) else repr(value)
