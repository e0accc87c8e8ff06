"""`kafkatap` and `python -m kafkatap`. Importing this imports nothing heavy; `--help` stays fast."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

INTERRUPTED = 130


def command() -> NoReturn:
    """What the installed command runs: `main`, without what costs time and gives nothing in a process of its own.

    No garbage is collected while modules are imported, and at the end the process just ends, once its output is
    written: 30 ms of 170 for a small capture.
    """
    gc.disable()
    try:
        code = main()
    except Exception:  # a mistake of ours: the interpreter's own end would wait for the thread that reads ahead
        sys.excepthook(*sys.exc_info())
        code = 2
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = code or 1
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code (see `kafkatap --help`)."""
    # numpy's linear algebra, which is never used here, would start its threads at import: 50 ms.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from .commands.options import build_parser, completion_script

    parser = build_parser()
    options = parser.parse_args(arguments)
    try:
        if options.command == "report":
            from .commands.report import report

            if not gc.isenabled():  # by `command`
                gc.freeze()
                gc.enable()
            return report(options)
        if options.command == "show":
            from .commands.show import show

            return show(options)
        if options.command == "apis":
            from .commands.apis import apis

            return apis(options)
        if options.command == "records":
            from .commands.records import records

            return records(options)
        if options.command == "live":
            from .commands.live import live

            if not gc.isenabled():  # by `command`: what runs for months needs it
                gc.enable()
            return live(options)
        if options.command == "spark":
            from .commands.spark import spark

            return spark(options)
        if options.command == "completion":
            print(completion_script(options.shell), flush=True)
            return 0
        parser.print_help()
        sys.stdout.flush()
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (a pager that was left, `head`): nothing to complain about.
        drop_output()
        return 0


def drop_output() -> None:
    """Let what is left of standard output go nowhere, so that the interpreter's last flush does not fail either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    command()
