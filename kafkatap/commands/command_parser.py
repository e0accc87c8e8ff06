"""The parser of one command."""

from __future__ import annotations

import argparse
from typing import Any


class Command(argparse.ArgumentParser):
    """The parser of one command: it tells itself what it does not know, with its own usage."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        for text in unknown:
            if not text.startswith("-"):
                continue
            from difflib import get_close_matches

            name = text.partition("=")[0]
            near = get_close_matches(name, self._option_string_actions, 2, 0.7)
            self.error(f"there is no option {name}" + (f"; did you mean {' or '.join(near)}?" if near else ""))
        return found, unknown
