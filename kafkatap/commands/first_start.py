"""The first start of a build for a platform on which nobody ever ran one (`Platform.is_tried`).

Such a build has a capture with it. Its first start decodes that and compares all values with those of Linux. If one
differs, it does nothing else. What it found right is noted in the user's cache folder, by a digest of the library.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from kafkatap.kernels import library, platforms
from kafkatap.kernels.cache import trusted_root

#: The capture, in builds that need it, and digests of what is decoded of it.
CAPTURE = Path(__file__).with_name("first_start.pcap.zst")
VALUES = Path(__file__).with_name("first_start.json")


def problem() -> str | None:
    """Why this build must not be used, or None."""
    platform = platforms.here()
    if platform is None or platform.is_tried or library.open_library() is None:
        return None
    root = trusted_root()
    digest = hashlib.blake2b(Path(library.FOLDER, library.LIBRARY).read_bytes(), digest_size=16).hexdigest()
    noted = None if root is None else root / f"decodes-as-linux-{digest}"
    if noted is not None and noted.exists():
        return None
    wrong = differences(CAPTURE)
    if not wrong:
        with suppress(OSError):
            if noted is not None:
                noted.touch()
        return None
    return (
        f"this build for {platform.name}, which nobody has run before, decodes its test capture otherwise than on "
        f"Linux ({', '.join(wrong)}): do not use it"
    )


def differences(capture: Path) -> list[str]:
    """What is decoded otherwise of the capture, by name."""
    found, wanted = digests(capture), json.loads(VALUES.read_text())
    return sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))


def digests(capture: Path) -> Mapping[str, str]:
    """Digests of each section of the capture's report, and of all fields of its messages."""
    report = json.loads(_printed("report", "--json", "--sections", "all", "--no-progress", str(capture)))
    made = {f"section {name}": rows for name, rows in report["reports"].items()}
    made["messages"] = _printed("show", "--json", "--records", str(capture))
    return {name: _digest(json.dumps(each).replace(str(capture), "CAPTURE")) for name, each in made.items()}


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _printed(*arguments: str) -> str:
    """What a command prints."""
    from .command_parser import parse, part_of

    options = parse(arguments)
    with _standard_output() as out:
        part_of(options.command, "command").run(options)
    return out.getvalue().decode()


@contextmanager
def _standard_output() -> Iterator[io.BytesIO]:
    """The bytes of standard output meanwhile."""
    before, out = sys.stdout, io.BytesIO()
    sys.stdout = io.TextIOWrapper(out, "utf-8", newline="\n", write_through=True)
    try:
        yield out
    finally:
        sys.stdout.detach()
        sys.stdout = before


if __name__ == "__main__":  # python -m kafkatap.commands.first_start CAPTURE: write the digests anew
    VALUES.write_text(json.dumps(digests(Path(os.path.abspath(sys.argv[1]))), indent=1, sort_keys=True) + "\n")
