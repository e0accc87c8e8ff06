"""`kafkatap` and `python -m kafkatap`. Importing this imports nothing heavy; `--help` stays fast."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code (see `kafkatap --help`)."""
    # numpy's linear algebra, which is never used here, would start its threads at import: 50 ms.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from .options import build_parser, completion_script

    parser = build_parser()
    options = parser.parse_args(arguments)
    try:
        if options.command == "report":
            from .cli import report

            return report(options)
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
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
