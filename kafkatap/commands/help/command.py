"""`kafkatap help`: the help of commands, and pages that no command has."""

from __future__ import annotations

import argparse
import textwrap
from importlib.resources import files

from ..command_parser import COMMANDS, build_parser, near_words, parser_of
from ..exit_codes import DONE, WRONG

_WIDTH = 100


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    topic = options.topic
    if topic is None:
        build_parser().print_help()
    elif topic in COMMANDS:
        parser_of(topic).print_help()
    elif topic == "agents":
        print(agents_page(), end="")
    elif topic == "findings":
        print(_all_kinds(), end="")
    elif text := _meaning(topic):
        print(text)
    else:
        from kafkatap.reports.kind_meanings import FAMILIES

        from ...complaints import complain

        known = [*COMMANDS, "agents", "findings", *(kind for found in FAMILIES.values() for kind in found)]
        complain(f"there is no help on {topic!r}{near_words(topic, known) or ': see kafkatap help'}")
        return WRONG
    return DONE


def agents_page() -> str:
    """The page for programs and agents."""
    from kafkatap.reports.kind_meanings import FAMILIES

    ids = (textwrap.fill(f"{family}: {', '.join(found)}", _WIDTH) for family, found in FAMILIES.items())
    text = files(__package__).joinpath("agents.md").read_text(encoding="utf-8")
    return text.replace("{kinds}", "\n".join(ids))


def _all_kinds() -> str:
    from kafkatap.reports.kind_meanings import FAMILIES

    width = max(len(kind) for found in FAMILIES.values() for kind in found) + 2
    parts = (
        "\n".join([f"{family}:", *(f"  {kind:<{width}}{meaning}" for kind, meaning in found.items())])
        for family, found in FAMILIES.items()
    )
    return "\n\n".join(parts) + "\n"


def _meaning(kind: str) -> str:
    """What one kind of finding means; "" if there is none of this name."""
    from kafkatap.reports.advice.catalogue import CATALOGUE
    from kafkatap.reports.kind_meanings import FAMILIES

    lines = [f"{kind}: {found[kind]}" for found in FAMILIES.values() if kind in found]
    for signature in (each for each in CATALOGUE if each.id == kind):
        parts = {"in packets": signature.wire, "setting": signature.setting, "remedy": signature.remedy,
                 "named if": signature.threshold}  # fmt: skip
        lines += [f"{name}: {text}" for name, text in parts.items()]
    return "\n".join(textwrap.fill(line, _WIDTH, subsequent_indent="  ") for line in lines)
