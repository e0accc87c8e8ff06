"""The options of `kafkatap apis`."""

from __future__ import annotations

import argparse

from ..shared_options import add_color, add_definitions

DESCRIPTION = (
    "List Kafka's APIs, their versions and the releases that support them. With NAME, list what each version of them "
    "changed."
)
EXAMPLES = """\
examples:
  kafkatap apis                         all APIs: what Kafka 4.0 removed, what is newest
  kafkatap apis Fetch Produce           version by version: since when, and what changed
  kafkatap apis --release 3.9           the APIs and versions of one release
  kafkatap apis --json | jq '.apis[] | select(.flexible_from == null) | .name'

"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    parser.add_argument("apis", nargs="*", metavar="NAME", help="list these APIs version by version, by name or key")
    what = parser.add_argument_group("selection")
    what.add_argument("--release", metavar="X.Y", help="only APIs and versions of this release, such as 4.0")
    add_definitions(what)
    how = parser.add_argument_group("output")
    add_color(how)
    how.add_argument("--json", action="store_true", help="write all of it as one JSON object")
