"""Compile the programs of all profiles, when the package is built.

`python -m kafkatap.dissector.programs.make_programs` puts them beside the library of kernels. `loading` reads them from
there while their sources have not changed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kafkatap.kernels.source_list import write_source_list

from .compiler import compile_programs
from .kept_programs import source_files
from .loading import MADE_AHEAD, SOURCES
from .profiles import PROFILES
from .program import layouts_of
from .program_files import programs_as_bytes


def make_programs(out: Path, installed: bool) -> None:
    """Fill the folder `out`. `installed`: the sources are used where they are now."""
    out.mkdir(exist_ok=True)
    for name, profile in PROFILES.items():
        programs = compile_programs(layouts_of(None), profile)
        (out / MADE_AHEAD.format(name)).write_bytes(programs_as_bytes(programs))
    write_source_list(str(out / SOURCES), source_files(), installed=installed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kafkatap.dissector.programs.make_programs")
    parser.add_argument("--installed", action="store_true", help="the sources are used where they are now")
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    make_programs(options.out, options.installed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
