"""Runs that are killed: a process of its own, which forks a child for each of its ways to die.

    python -m tests.spark.killed FOLDER renames|deletes|copies

The store renames files in place of others (local), must delete those first (HDFS), or copies (object stores).
FOLDER/first is what an earlier run published, FOLDER/staged the same with a second run's files that are not published
yet, FOLDER/written.pickle the arguments of the second run's `publish`. A child works on a copy and ends by `os._exit`
at the n-th change to a file: before it, or in the middle of it. Then the folder is opened again, as the next run does,
in a second round by one that is killed itself. Prints JSON: [n, how, what was seen after the kill, what in the end],
what is seen as {file: digest}.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kafkatap.spark.output.folders import Folder
from kafkatap.spark.output.publish import Publication, Staging, Written, open_publication
from tests.spark.rows import TABLES_MADE

CHANGES = ("open_output_stream", "move", "copy_file", "delete_file", "delete_dir", "create_dir")
KILLED, DONE = 3, 0
_made = Folder.__init__


class Mortal:
    """A file system of pyarrow; the process ends at the n-th change. In the middle of one, a file is written by half
    (which object stores do not do: they copy instead of renaming), and a folder has lost every other file."""

    def __init__(self, system: Any, renames: bool, at: int, midway: bool) -> None:
        self._system, self._renames, self._left, self._midway = system, renames, at, midway

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._system, name)
        if name not in CHANGES:
            return method

        def change(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left:
                return method(*arguments, **options)
            if self._midway:
                self._begin(name, arguments)
            os._exit(KILLED)

        return change

    def _begin(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "open_output_stream" and self._renames:
            Path(arguments[0]).write_bytes(b'{"tables": [')
        elif name == "copy_file":
            whole = Path(arguments[0]).read_bytes()
            Path(arguments[1]).write_bytes(whole[: len(whole) // 2])
        elif name == "delete_dir":
            for file in sorted(p for p in Path(arguments[0]).rglob("*") if p.is_file())[::2]:
                file.unlink()


def in_child(work: Callable[[], None], store: str, at: int, midway: bool) -> int:
    """Carry `work` out in a process that dies at its `at`-th change; how it ended."""
    child = os.fork()
    if child:
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert ended in (KILLED, DONE), ended
        return ended

    def init(self: Folder, path: str) -> None:
        _made(self, path)
        renames = store != "copies"
        self.system, self.renames = Mortal(self.system, renames, at, midway), renames
        self._replaces = store != "deletes"

    Folder.__init__ = init  # type: ignore[method-assign]
    try:
        work()
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(DONE)


def publish(out: str, written: list[Written]) -> None:
    Publication(Staging(out, "second"), Folder(out), lambda: None).publish(written, TABLES_MADE)


def open_again(out: str) -> None:
    with open_publication(out, "third"):
        pass


def seen(out: Path) -> dict[str, str]:
    return {
        str(file.relative_to(out)): hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest()
        for file in sorted(out.rglob("*"))
        if file.is_file() and file.name != "_lock"
    }


def deaths(folder: Path, store: str, work: Callable[[str], None], begin: Path) -> Iterator[tuple[int, bool, Path]]:
    """(n, midway, the folder as the n-th change left it), until nothing is left to be killed."""
    for midway in (False, True):
        ended, n = KILLED, 0
        while ended == KILLED:
            n += 1
            out = folder / f"out-{n}"
            shutil.copytree(begin, out)
            ended = in_child(lambda out=str(out): work(out), store, n, midway)  # type: ignore[misc]
            yield n, midway, out
            shutil.rmtree(out, ignore_errors=True)


def main(folder: Path, store: str) -> None:
    written = pickle.loads((folder / "written.pickle").read_bytes())
    found = []
    half_done = folder / "half-done"
    for n, midway, out in deaths(folder, store, lambda out: publish(out, written), folder / "staged"):
        after = seen(out)
        if n == 20 and not midway:
            shutil.copytree(out, half_done)
        open_again(str(out))
        found.append((n, midway, after, seen(out)))
    for n, midway, out in deaths(folder, store, open_again, half_done):
        after = seen(out)
        open_again(str(out))
        found.append((n, midway, after, seen(out)))
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
