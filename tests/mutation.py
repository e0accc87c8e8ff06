"""Change product code in small ways, and list the changes that no test notices.

    python -m tests.mutation kafkatap/live/governor.py
    python -m tests.mutation kafkatap/doctor/packet_checks.py:60-70 --tests tests/doctor -k "late or clock"

Each change (a mutant) is one of: another comparison, operator or boolean operator; a `not` or minus left out; a number
plus one; min for max, any for all; a statement left out; a name or call as a condition that always holds, or never. A
first run notes which tests run each line. Then each mutant is run against those tests only, the fastest first. Tests
see mutants in other processes too, because each job has a copy of the tree. Kernels run as Python while one of them is
changed.

A survivor is code without a test, or a change that makes no difference. Its line is printed with the change, and the
exit status is 1.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: Seconds of processor time that tests of a mutant may take beyond three times what they took before, and by the clock,
#: beyond ten times that. The second is for those that wait; a busy machine must not decide.
PROCESSOR_PATIENCE, PATIENCE = 30, 300.0
#: Loaded once, before processes are forked: modules that most tests need.
LIBRARIES = ("numpy", "pyarrow.compute", "pyarrow.parquet", "hypothesis")

_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_NAMES = {a: b for pair in (("min", "max"), ("any", "all"), ("minimum", "maximum"), ("argmin", "argmax"))
          for a, b in (pair, pair[::-1])}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """The lines `first` to `last` of a module (`path` in the tree), and its whole text after a change."""

    path: str
    first: int
    last: int
    before: str
    after: str
    text: bytes
    is_in_function: bool

    def __str__(self) -> str:
        return f"{self.path}:{self.first}: {self.before}  ->  {self.after}"


@dataclass(slots=True)
class Coverage:
    """The tests that run each line, and the seconds that each test takes."""

    tests: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that run the lines of a mutant, the fastest first. All, if none does: other processes may."""
        lines = range(mutant.first, mutant.last + 1)
        found = set().union(*(self.tests.get((mutant.path, n), set()) for n in lines))
        if not mutant.is_in_function or not found:
            found = set(self.seconds)
        return sorted(found, key=lambda test: self.seconds[test])


def mutants_of(path: str, source: bytes, lines: range) -> Iterator[Mutant]:
    """All mutants whose change begins on these lines."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, replaced, is_in_function in _changes(ast.parse(source), False):
        if node.lineno not in lines:
            continue
        first, last = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        before, after = source[first:last], replaced.encode()
        text = source[:first] + after + source[last:]
        with suppress(SyntaxError):
            compile(text, path, "exec")
            yield Mutant(path, node.lineno, node.end_lineno, before.decode(), replaced, text, is_in_function)


def _changes(node: ast.AST, is_in_function: bool) -> Iterator[tuple[Any, str, bool]]:
    """Nodes with the text of a change, and whether they run only when a function is called."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params") or isinstance(node, ast.JoinedStr):
            continue
        inside = is_in_function or (name == "body" and isinstance(node, ast.FunctionDef | ast.Lambda))
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_for_types(child):
                if name == "test" and isinstance(child, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
                    yield from ((child, text, inside) for text in ("True", "False"))
                yield from ((child, text, inside) for text in _replaced(child, inside))
                yield from _changes(child, inside)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _replaced(node: ast.AST, is_in_function: bool) -> Iterator[str]:
    """The texts that may stand in the place of a node."""
    match node:
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for n, op in enumerate(ops):
                for other in _COMPARED[type(op)]:
                    yield f"({ast.unparse(ast.Compare(left, [*ops[:n], other(), *ops[n + 1 :]], comparators))})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            yield f"({ast.unparse(ast.BinOp(left, _OPERATORS[type(op)](), right))})"
        case ast.BoolOp(op=op, values=values):
            yield f"({ast.unparse(ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values))})"
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield f"{value + 1}"
        case ast.Name(id=name) if name in _NAMES:
            yield _NAMES[name]
        case ast.Attribute(value=value, attr=name) if name in _NAMES:
            yield f"{ast.unparse(value)}.{_NAMES[name]}"
        case ast.AugAssign() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if is_in_function:
            yield "pass"
        case ast.Expr(value=ast.Call()) | ast.Continue() | ast.Break() if is_in_function:
            yield "pass"


class _Notes:
    """A pytest plugin that notes which tests run which lines of some modules."""

    def __init__(self, tree: Path, paths: Sequence[str]) -> None:
        self._paths = {str(tree / path): path for path in paths} | {
            str((tree / path).resolve()): path for path in paths
        }
        self._test = ""
        self.coverage = Coverage()

    def _trace(self, frame: FrameType, event: str, arg: object) -> Any:
        path = self._paths.get(frame.f_code.co_filename)
        if path is None:
            return None

        def line(frame: FrameType, event: str, arg: object) -> Any:
            self.coverage.tests.setdefault((path, frame.f_lineno), set()).add(self._test)
            return line

        return line(frame, event, arg)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test, began = item.nodeid, time.monotonic()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self.coverage.seconds[item.nodeid] = time.monotonic() - began


def copied_tree(folder: Path) -> Path:
    """A copy of what the tree has now, without what it ignores but for compiled kernels."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0"):
        if name and (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    with suppress(FileNotFoundError):
        shutil.copytree(ROOT / "kernels" / "compiled", folder / "kernels" / "compiled")
    return folder


def run_tests(
    tree: Path, arguments: Sequence[str], notes: _Notes | None = None, to: Path | None = None, usual: float = 0.0
) -> None:
    """Run tests in a copy of the tree, in this new process, and exit with pytest's status. `usual`: the seconds that
    they take without a change, if they may not take much longer."""
    os.setsid()
    if usual:
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_PATIENCE + int(3 * usual),) * 2)
    with open(os.devnull if to is None else to.with_suffix(".log"), "w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.chdir(tree)
    sys.path[:] = [str(tree), *(path for path in sys.path if Path(path or ".").resolve() != ROOT)]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("kafkatap", "tests")]:
        del sys.modules[name]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={tree}"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of LIBRARIES
    if notes is None:
        options.append("-x")
    status = pytest.main([*options, *arguments], plugins=[notes] if notes else [])
    if notes is not None and to is not None:
        tests = [(*line, sorted(names)) for line, names in notes.coverage.tests.items()]
        to.write_text(json.dumps([tests, notes.coverage.seconds]))
    os._exit(int(status))


def covered(tree: Path, paths: Sequence[str], arguments: Sequence[str]) -> Coverage:
    """Run the tests as they are. SystemExit if they fail."""
    to = tree.parent / "coverage.json"
    process = multiprocessing.get_context("fork").Process(
        target=run_tests, args=(tree, arguments, _Notes(tree, paths), to)
    )
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"the tests fail without a change:\n{to.with_suffix('.log').read_text()[-3000:]}")
    tests, seconds = json.loads(to.read_text())
    return Coverage({(path, line): set(names) - {""} for path, line, names in tests}, seconds)


def survivors(
    mutants: Sequence[Mutant], trees: list[Path], coverage: Coverage, originals: dict[str, bytes]
) -> Iterator[Mutant]:
    """Run mutants, one in each tree at a time; those that no test notices."""
    fork, left = multiprocessing.get_context("fork"), list(reversed(mutants))
    running: dict[BaseProcess, tuple[Mutant, Path, float]] = {}
    while left or running:
        while left and trees:
            mutant, tree = left.pop(), trees.pop()
            tests = coverage.tests_of(mutant)
            (tree / mutant.path).write_bytes(mutant.text)
            usual = sum(coverage.seconds[test] for test in tests)
            process: BaseProcess = fork.Process(target=run_tests, args=(tree, tests, None, None, usual))
            process.start()
            running[process] = (mutant, tree, time.monotonic() + PATIENCE + 10 * usual)
        wait([process.sentinel for process in running], timeout=1)
        for process, (mutant, tree, end) in list(running.items()):
            if process.is_alive() and time.monotonic() < end:
                continue
            is_noticed = process.is_alive() or process.exitcode != 0
            if process.is_alive() or process.exitcode == -signal.SIGXCPU or process.exitcode == -signal.SIGKILL:
                print(f"{mutant}: its tests did not end", file=sys.stderr, flush=True)
            _end(process)
            del running[process]
            (tree / mutant.path).write_bytes(originals[mutant.path])
            trees.append(tree)
            if not is_noticed:
                yield mutant


def _end(process: BaseProcess) -> None:
    """End a process that runs tests, and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()


def tests_beside(path: str) -> str:
    """The folder of tests that is named as a folder of a module."""
    for name in reversed(Path(path).parent.parts):
        if (ROOT / "tests" / name).is_dir():
            return f"tests/{name}"
    raise SystemExit(f"no folder of tests is named as a folder of {path}: name tests with --tests")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("modules", nargs="+", metavar="MODULE[:FIRST-LAST]", help="a file, or some lines of it")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="default: the folder of tests of the same name")
    parser.add_argument("-k", metavar="EXPRESSION", help="only tests that match, as in pytest")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="mutants at the same time (default: 2)")
    options = parser.parse_args(arguments)
    mutants: list[Mutant] = []
    originals: dict[str, bytes] = {}
    for name in options.modules:
        path, _, lines = name.partition(":")
        first, _, last = lines.partition("-")
        path = str((ROOT / path).resolve().relative_to(ROOT))  # folders of kafkatap that are links
        originals[path] = (ROOT / path).read_bytes()
        mutants += mutants_of(path, originals[path], range(int(first or 1), int(last or first or 1 << 30) + 1))
    os.environ["PYTHONDONTWRITEBYTECODE"], sys.dont_write_bytecode = "1", True
    if any(b"@kernel" in source or b"@helper" in source for source in originals.values()):
        os.environ["KAFKATAP_KERNELS"] = "python"
    chosen = options.tests or sorted({tests_beside(path) for path in originals})
    for name in LIBRARIES:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        trees = [copied_tree(Path(folder) / f"tree{n}") for n in range(options.jobs)]
        coverage = covered(trees[0], list(originals), [*chosen, *(["-k", options.k] if options.k else [])])
        print(f"{len(mutants)} mutants, {len(coverage.seconds)} tests", file=sys.stderr)
        found = 0
        for mutant in survivors(mutants, trees, coverage, originals):
            found += 1
            print(mutant, flush=True)
    print(f"{found} of {len(mutants)} mutants survived")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
