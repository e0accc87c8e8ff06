"""What a wheel holds for shells: manual pages, and completion scripts for bash, zsh and fish.

The build hook runs `write_shell_files`. The files lie below `share` where shells and man look for them, so they work
as soon as the package is installed into a prefix that these search, such as /usr/local or a virtual environment.
"""

from __future__ import annotations

import os
from pathlib import Path

from .command import completion_script

#: Where shells look for the script of a program, below the prefix of an installation.
SCRIPTS = {
    "bash": "share/bash-completion/completions/kafkatap",
    "zsh": "share/zsh/site-functions/_kafkatap",
    "fish": "share/fish/vendor_completions.d/kafkatap.fish",
}
PAGES = "share/man/man1"


def write_shell_files(prefix: Path, version: str) -> list[str]:
    """Write the files below a folder, and return their paths in it."""
    os.environ["COLUMNS"] = "80"  # the width of help texts, whatever terminal builds the package
    from .man_pages import man_pages

    files = {f"{PAGES}/{name}": page for name, page in man_pages(version).items()}
    files |= {path: completion_script(shell) + "\n" for shell, path in SCRIPTS.items()}
    for path, text in files.items():
        (prefix / path).parent.mkdir(parents=True, exist_ok=True)
        (prefix / path).write_text(text, encoding="utf-8")
    return list(files)
