"""`kafkatap` and `python -m kafkatap`. Importing this imports nothing heavy, so that `--help` is fast."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import argparse


def command() -> NoReturn:
    """The installed command: `main`, with a faster start and end.

    No garbage is collected while modules are imported. The process ends without the interpreter's own end, once its
    output is written. Both save 30 ms of 170 for a small capture.
    """
    gc.disable()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller has closed it
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    try:
        code = main()
    except Exception:  # a bug of ours: the interpreter's own end would wait for the thread that reads ahead
        sys.excepthook(*sys.exc_info())
        code = 2
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        pass  # as in `main`
    except OSError:
        code = code or 1
    os._exit(code)


def extcap() -> NoReturn:
    """The installed command `kafkatap-extcap`, which Wireshark runs: `kafkatap extcap`."""
    sys.argv.insert(1, "extcap")
    command()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code (see `kafkatap --help`)."""
    # numpy's linear algebra, which nothing here uses, would start its threads at import: 50 ms.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from .commands.command_parser import build_parser, parse, part_of
    from .commands.exit_codes import DONE, INTERRUPTED, WRONG

    try:
        try:
            options = parse(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()  # of a help or a list, which ends the process
        if options.command is None:
            build_parser().print_help()
            sys.stdout.flush()
            return WRONG
        if sys.platform != "linux":
            from .commands.first_start import problem

            if why := problem():
                print(f"kafkatap: {why}", file=sys.stderr)
                return WRONG
        run: Callable[[argparse.Namespace], int] = part_of(options.command, "command").run
        if not (getattr(options, "pager", False) and sys.stdout.isatty()):
            return run(options)
        from .commands.pager import paged

        return paged(run, options)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone (a pager was closed, `head`): that is no error.
        from .commands.console import discard_output

        discard_output()
        return DONE
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "pyarrow":
            from .installation import without_arrow

            print(f"kafkatap: {without_arrow('this needs')}", file=sys.stderr)
            return WRONG
        from .kernels.library import KernelsMissingError

        if not isinstance(error, KernelsMissingError):
            raise
        from .installation import install_command

        print(f"kafkatap: its compiled kernels cannot be used: {error}", file=sys.stderr)
        from .kernels.platforms import compiler, here

        if here() == compiler():  # numba can be had, as far as we know
            print(f"kafkatap: with numba it compiles them itself: {install_command('jit')}", file=sys.stderr)
        return WRONG


if __name__ == "__main__":
    command()
