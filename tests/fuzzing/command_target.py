"""The outputs of the commands `report`, `show`, `records`, `doctor` and `compare` over damaged captures.

A command ends with a declared exit code. Its outputs are UTF-8 without any character that acts on a terminal. Its JSON
parses and is ASCII, and the ledger in it adds up.
"""

from __future__ import annotations

import io
import json
import random
import re
import sys
import unicodedata
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafkatap.__main__ import main
from tests.wire.mutations import changed

from . import capture_inputs
from .capture_targets import scratch_folder
from .target import Target

_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_SGR = re.compile(r"\x1b\[[0-9;]*m")
_COMMANDS = (
    ("report",),
    ("report", "--by", "topic", "-n", "all", "--color", "always"),
    ("report", "--json", "--by", "client"),
    ("show",),
    ("show", "--tree", "--hex", "--records"),
    ("show", "--tree", "--show-secrets", "--stream", "--color", "always"),
    ("show", "--json", "--records"),
    ("show", "--json", "--brief", "--filter", "latency > 0ms or error or api == Fetch"),
    ("records",),
    ("records", "--values", "hex", "--max-bytes", "9"),
    ("records", "--json"),
    ("doctor", "--ledger"),
    ("doctor", "--json"),
)
_COMPARISONS = (
    ("compare",),
    ("compare", "--json"),
    ("compare", "--color", "always", "--min-change", "0.1"),
    ("compare", "--html", str(scratch_folder() / "compared" / "page.html"), "--overwrite"),
)
#: Commands whose JSON is one document, with a ledger.
_WHOLE = ("report", "doctor")


def a_capture(chance: random.Random) -> bytes:
    """A capture with any damage; in some, texts from the wire are nasty."""
    make = chance.choice(
        (
            capture_inputs.damaged_frames,
            capture_inputs.damaged_frames,
            capture_inputs.damaged_file,
            capture_inputs.hostile_segments,
            capture_inputs.damaged_headers,
            _nasty_texts,
        )
    )
    return make(chance)


def _nasty_texts(chance: random.Random) -> bytes:
    data = capture_inputs.damaged_frames(chance)
    for text in (b"app", b"PLAIN", b"topic-", b"group-"):
        nasty = chance.choice((b"\x1b[2J", b"\x9b31m", b"\xe2\x80\xae", b"\r\n\x07\0", b"\xff\xfe\xc3("))
        data = data.replace(text, nasty[: len(text)].ljust(len(text), b"\x1b"))
    return data


def check_commands(data: bytes) -> None:
    """Run two commands on a capture and check what they print."""
    path = scratch_folder() / "capture.pcap"
    path.write_bytes(data)
    chance = random.Random(zlib.crc32(data))
    for arguments in chance.sample(_COMMANDS, 2):
        _check_command(arguments, path)


def check_comparison(data: bytes) -> None:
    """Compare the first of several captures with the others."""
    folder = scratch_folder() / "compared"
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    paths = [folder / f"{number}.pcap" for number in range(2)]
    files = capture_inputs.unpacked(data)
    for path, part in zip(paths, files, strict=False):
        path.write_bytes(part)
    one_sided = () if len(files) == 2 else ("--one-sided",)
    arguments = random.Random(zlib.crc32(data)).choice(_COMPARISONS)
    code, _ = checked_run((*arguments, *one_sided, "--utc", *(str(path) for path in paths if path.exists())))
    assert code in (0, 1, 2, 3), code
    page = folder / "page.html"
    if page.exists():
        assert not _acting(page.read_text("utf-8").replace("\t", "")), "a character that acts, in the page"


def two_captures(chance: random.Random) -> bytes:
    """Two captures with any damage, or one beside a copy of itself that is damaged once more."""
    first = a_capture(chance)
    second = changed(first, chance) if chance.random() < 0.5 else a_capture(chance)
    return capture_inputs.packed([first, second])


def _check_command(arguments: tuple[str, ...], path: Path) -> None:
    code, printed = checked_run((*arguments, "--utc", str(path)))
    assert code in (0, 1, 2, *((3,) if arguments[0] == "doctor" else ())), code
    if "--json" in arguments and printed:
        found = [json.loads(line, parse_constant=_refuse) for line in _json_texts(arguments, printed)]
        if arguments[0] in _WHOLE:
            _check_ledger(found[0]["reports"]["ledger"])


def checked_run(arguments: tuple[str, ...]) -> tuple[int, str]:
    """Run a command; its exit code and what it printed, in which nothing may act on a terminal."""
    with _outputs() as (out, err):
        code = main(arguments)
    printed, complaints = (stream.buffer.getvalue().decode("utf-8") for stream in (out, err))
    if "always" in arguments:
        printed = _SGR.sub("", printed)
    for text in (printed, complaints):
        assert not _acting(text), f"{sorted(_acting(text))!r} in the output of {arguments}"
    assert "--json" not in arguments or printed.isascii()
    return code, printed


def _json_texts(arguments: tuple[str, ...], printed: str) -> list[str]:
    return [printed] if arguments[0] in _WHOLE else printed.splitlines()


def _refuse(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


def _check_ledger(rows: list[dict[str, Any]]) -> None:
    sections: dict[str, dict[str, int]] = {}
    for row in rows:
        sections.setdefault(row["section"], {})[row["part"]] = row["count"]
    for name, parts in sections.items():
        total = parts.pop("total")
        assert min(parts.values(), default=0) >= 0, (name, parts)
        assert sum(parts.values()) == total, (name, parts, total)


def _acting(text: str) -> set[str]:
    return {c for c in set(text) if c != "\n" and unicodedata.category(c) in _HIDDEN}


@contextmanager
def _outputs() -> Iterator[tuple[Any, Any]]:
    """Standard output and standard error of the commands meanwhile."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n") for _ in range(2))
    try:
        yield sys.stdout, sys.stderr
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        sys.stdout, sys.stderr = before


COMMAND_TARGETS = (
    Target("commands", a_capture, check_commands, seconds=2.0),
    Target("compare", two_captures, check_comparison, seconds=2.0),
)
