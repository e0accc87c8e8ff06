"""The options of `kafkatap apis`."""

from __future__ import annotations

import argparse

from ..shared_options import add_color, add_definitions, add_pager
from ..values import parse_release

DESCRIPTION = (
    "List Kafka's APIs, their versions and the releases that support them. With NAME, list what each version of them "
    "changed, and all fields with what their definition says."
)
EXAMPLES = """\
examples:
  kafkatap apis                         all APIs, with removed and newest versions
  kafkatap apis Fetch Produce           the changes of each version of these APIs
  kafkatap apis --release 3.9           the APIs and versions of one release
  kafkatap apis --definitions ~/kafka   with those of Kafka's sources in this folder
  kafkatap apis --json | jq '.apis[] | select(.flexible_from == null) | .name'

"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the command's parser."""
    parser.add_argument("apis", nargs="*", metavar="NAME", help="list these APIs version by version, by name or key")
    what = parser.add_argument_group("selection")
    what.add_argument("--release", type=parse_release, metavar="RELEASE",
                      help="only APIs and versions of this release, such as 4.0")  # fmt: skip
    add_definitions(what)
    how = parser.add_argument_group("output")
    add_color(how)
    add_pager(how)
    how.add_argument("--json", action="store_true", help="write everything as one JSON object")
