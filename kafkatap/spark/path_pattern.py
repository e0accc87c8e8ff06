"""`PathPattern`: the cluster, site and host of a capture, from names in its path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: The names that a pattern may have in braces, each a column of `files` in Delta tables.
NAMES = ("cluster", "site", "host")


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A pattern such as `{cluster}/{host}/*`, for the last folders of a path and the name of its file.

    `{NAME}` stands for one character or more within a folder or name, and `*` for any number of them. ValueError if
    it has no name, or another one than NAMES, or one twice.
    """

    text: str

    def __post_init__(self) -> None:
        names = re.findall(r"\{([^{}]*)\}", self.text)
        wrong = next((name for name in names if name not in NAMES), None)
        if wrong is not None:
            raise ValueError(f"path pattern: {{{wrong}}} is none of {{cluster}}, {{site}} and {{host}}")
        if not names:
            raise ValueError(f"path pattern: {self.text!r} has none of {{cluster}}, {{site}} and {{host}}")
        if len(set(names)) < len(names):
            raise ValueError(f"path pattern: {self.text!r} has a name twice")

    def names_in(self, path: str) -> Mapping[str, str]:
        """The names that a path has; none if it does not match."""
        parts = re.split(r"(\{\w+\}|\*)", self.text.strip("/"))
        within = [
            f"(?P<{part[1:-1]}>[^/]+)" if part.startswith("{") else "[^/]*" if part == "*" else re.escape(part)
            for part in parts
        ]
        found = re.search(f"(?:^|/){''.join(within)}$", path)
        return {} if found is None else found.groupdict()

    def check(self, paths: Iterable[str]) -> None:
        """ValueError if no path matches."""
        first = None
        for path in paths:
            if self.names_in(path):
                return
            first = first or path
        if first is not None:
            raise ValueError(f"path pattern: {self.text!r} matches the end of no path, such as {first}")
