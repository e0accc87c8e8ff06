"""What a wheel holds for shells: manual pages, and completion scripts for bash, zsh and fish.

The build hook runs `write_shell_files`. The files lie below `share` where shells and man look for them, so they work
as soon as the package is installed into a prefix that these search, such as /usr/local or a virtual environment.

Manual pages are made from the parsers: kafkatap(1) lists the commands, and each command has a page of its own.
argparse-manpage writes them from a parser's options, and only the build needs it. The texts below the options
(`EXAMPLES` of a command) become sections of their own, because their lines must not be filled.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from ..command_parser import COMMANDS, build_parser
from .command import completion_script

#: Where shells look for the script of a program, below the prefix of an installation.
SCRIPTS = {
    "bash": "share/bash-completion/completions/kafkatap",
    "zsh": "share/zsh/site-functions/_kafkatap",
    "fish": "share/fish/vendor_completions.d/kafkatap.fish",
}
PAGES = "share/man/man1"
MANUAL = "kafkatap manual"
_SUMMARY = "report on Kafka traffic from packet captures"
#: Headings of the texts below the options, and of sections in manual pages.
_SECTIONS = {"examples:": "EXAMPLES", "exit codes:": "EXIT STATUS"}


def write_shell_files(prefix: Path, version: str) -> list[str]:
    """Write the files below a folder, and return their paths in it."""
    os.environ["COLUMNS"] = "80"  # the width of help texts, whatever terminal builds the package
    files = {f"{PAGES}/{name}": page for name, page in man_pages(version).items()}
    files |= {path: completion_script(shell) + "\n" for shell, path in SCRIPTS.items()}
    for path, text in files.items():
        (prefix / path).parent.mkdir(parents=True, exist_ok=True)
        (prefix / path).write_text(text, encoding="utf-8")
    return list(files)


def man_pages(version: str) -> dict[str, str]:
    """Each page by its file name, such as `kafkatap-report.1`, in roff."""
    from argparse_manpage.manpage import Manpage

    parser = build_parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    parsers: dict[str, argparse.ArgumentParser] = dict(commands.choices)
    commands.choices.clear()  # each has its own page; the list of commands stays
    pages = {}
    for name, of in (("kafkatap", parser), *((f"kafkatap-{name}", parsers[name]) for name in COMMANDS)):
        epilog, of.epilog = of.epilog or "", None
        page = Manpage(of)
        page.prog, page.section, page.manual, page.source = name, 1, MANUAL, f"kafkatap {version}"
        page.date = _date()
        page.description = COMMANDS.get(name.removeprefix("kafkatap-"), _SUMMARY)
        for heading, text in _sections(epilog):
            page.add_section(heading, ">", text)
        page.add_section("see also", "=", _see_also([other for other in ("kafkatap", *_page_names()) if other != name]))
        pages[f"{name}.1"] = str(page)
    return pages


def _page_names() -> list[str]:
    return [f"kafkatap-{name}" for name in COMMANDS]


def _sections(epilog: str) -> Iterator[tuple[str, str]]:
    """The sections of the text below the options, each with its heading: the first line of a paragraph may be one."""
    between = ""
    for paragraph in filter(None, (part.strip("\n") for part in epilog.split("\n\n"))):
        first, _, rest = paragraph.partition("\n")
        if first in _SECTIONS:
            yield _SECTIONS[first], f".nf\n{_escaped(rest)}\n.fi\n"
        else:
            yield "NOTES", f"{between}{_escaped(paragraph)}\n"
            between = ".PP\n"


def _escaped(text: str) -> str:
    """Lines as roff: no backslash, leading dot or apostrophe in it is a request, and a hyphen is an ASCII one."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("~", "\\(ti").replace("^", "\\(ha")
    return re.sub(r"^(?=[.'])", r"\\&", text, flags=re.MULTILINE)


def _see_also(names: list[str]) -> str:
    return ",\n".join(f".BR {_escaped(name)} (1)" for name in names)


def _date() -> str:
    """The day of the build, or that of SOURCE_DATE_EPOCH."""
    day = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    return time.strftime(f"%B {day.tm_mday}, %Y", day)
