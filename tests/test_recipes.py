"""docs/recipes.md is so: each block runs, in order, and its output is the text below it.

`python -m tests.test_recipes` writes the outputs into the page.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kafkatap.live.export.metric_list import HISTOGRAM, METRICS
from kafkatap.live.export.parquet_files import ParquetLog
from tests.live.logged import log
from tests.spark.conftest import missing

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "recipes.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"\b(kafkatap_\w+)(?:\{([^}]*)\})?")


@dataclass(frozen=True)
class Block:
    """`output`: the text below it; None: there is none to compare."""

    language: str
    code: str
    output: str | None
    line: int


def blocks(text: str) -> list[Block]:
    return [
        Block(found[1], found[2], found[3], text.count("\n", 0, found.start()) + 1) for found in _BLOCK.finditer(text)
    ]


BLOCKS = blocks(PAGE.read_text(encoding="utf-8"))
#: Those of Delta tables. The first one writes the tables.
DELTA = [block for block in BLOCKS if "lake" in block.code]
#: Run on a session of Spark by tests/spark/test_delta_recipes.py.
ON_SPARK = [block for block in BLOCKS if "open_session" in block.code]
#: `kafkatap`, whose jobs have no session: the tables and reports are the same, and a session takes seconds.
_PROGRAM = """\
import sys
from kafkatap.__main__ import main
if sys.argv[1] == "spark":
    from unittest.mock import MagicMock
    from kafkatap.spark import job
    from kafkatap.spark.cluster import session
    run_job, session.open_session = job.run_job, MagicMock()
    job.run_job = lambda _, *arguments, **options: run_job(None, *arguments, **options)
sys.exit(main(sys.argv[1:]))
"""


def prepare(folder: Path) -> None:
    """Make a folder in which blocks run: with the samples, and `kafkatap` as a command."""
    (folder / "samples").symlink_to(ROOT / "samples")
    (folder / "bin").mkdir()
    program = folder / "bin" / "kafkatap"
    program.write_text(f"#!{sys.executable}\n{_PROGRAM}", encoding="utf-8")
    program.chmod(0o755)


def run(block: Block, folder: Path) -> str:
    """What a block prints."""
    if block.language == "sql":
        return table(block.code, folder)
    if block.language == "python":
        return printed(block, folder)
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", block.code], cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "TZ": "UTC"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def printed(block: Block, folder: Path) -> str:
    """What a block of Python prints in this process."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.chdir(folder):
        exec(compile(block.code, f"recipes.md:{block.line}", "exec"), {})
    return out.getvalue()


def table(query: str, folder: Path, tables: Mapping[str, Any] | None = None) -> str:
    """The rows of a query, aligned. `tables`: others than files, by name."""
    connection = duckdb.connect()
    for name, rows in (tables or {}).items():
        connection.register(name, rows)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"SET file_search_path = '{folder}'")
    result = connection.execute(query)
    names = [column[0] for column in result.description or ()]
    rows = [["-" if value is None else _text(value) for value in row] for row in result.fetchall()]
    is_number = [all(re.fullmatch(r"-|[\d.]+", row[i]) for row in rows) for i in range(len(names))]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    lines = [
        "  ".join(c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, is_number, strict=True)).rstrip()
        for row in [names, *rows]
    ]
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(int(value)) if isinstance(value, float) and value == int(value) else str(value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the tables that the first block writes."""
    made = tmp_path_factory.mktemp("recipes")
    prepare(made)
    assert run(BLOCKS[0], made) == BLOCKS[0].output
    return made


@pytest.fixture(scope="module")
def lake(folder: Path) -> Path:
    """With the Delta tables, too."""
    why = missing()
    if why:
        pytest.skip(why)
    assert run(DELTA[0], folder) == DELTA[0].output
    return folder


def name_of(block: Block) -> str:
    return f"{block.language}-{block.line}"


@pytest.mark.parametrize("block", [block for block in DELTA[1:] if block not in ON_SPARK], ids=name_of)
def test_a_recipe_for_delta_tables_prints_what_the_page_shows(block: Block, lake: Path) -> None:
    """Those of each program print the same."""
    assert run(block, lake) == block.output
    if "JOIN files" not in block.code and "rollup" not in block.code:
        assert block.output == DELTA[1].output


def test_queries_read_delta_tables(lake: Path) -> None:
    """With the names that the page has, and the same result as over files."""
    from deltalake import DeltaTable

    tables = {
        name: DeltaTable(str(lake / "lake" / name)).to_pyarrow_dataset()
        for name in ("exchanges", "results", "connections")
    }
    queries = [block.code for block in BLOCKS if block.language == "sql" and "'tables/*/" in block.code]
    tried = 0
    for query in queries:
        if "sections" in query or "/files.parquet" in query:
            continue
        named = re.sub(r"'tables/\*/(\w+)\.parquet'", r"\1", query)
        assert table(named, lake, tables) == table(query.replace("tables/*/", "tables/apache-*/"), lake), query
        tried += 1
    assert tried >= 5


@pytest.mark.parametrize("block", [b for b in BLOCKS[1:] if b.language != "promql" and b not in DELTA], ids=name_of)
def test_a_recipe_prints_what_the_page_shows(block: Block, folder: Path) -> None:
    if " jq " in block.code and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    assert block.output, "a recipe without output shows nothing"
    assert run(block, folder) == block.output


def test_queries_read_the_folders_of_live_capture(folder: Path, samples: Path, tmp_path: Path) -> None:
    """With the paths that the page names, and the same result."""
    log(samples / "apache-4.3.pcap.zst", ParquetLog(str(tmp_path / "tables")))
    queries = [block.code for block in BLOCKS if block.language == "sql" and "/files.parquet" not in block.code]
    tried = 0
    for query in queries:
        if "sections" in query or "tables/*/" not in query:
            continue
        live = re.sub(r"tables/\*/(\w+)\.parquet", r"tables/\1/**/*.parquet", query)
        assert table(live, tmp_path) == table(query.replace("tables/*/", "tables/apache-4.3/"), folder), query
        tried += 1
    assert tried >= 5


def test_every_tool_has_its_recipes() -> None:
    headings = re.findall(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == ["DuckDB", "pandas", "polars", "Delta tables of kafkatap spark", "jq", "Grafana"]
    assert len(BLOCKS) > 25


def test_expressions_of_panels_name_metrics_and_labels_that_exist(tmp_path: Path) -> None:
    known = {metric.name: {*metric.labels} for metric in METRICS}
    for metric in METRICS:
        if metric.kind == HISTOGRAM:
            known |= {f"{metric.name}_{part}": {*metric.labels, "le"} for part in ("bucket", "sum", "count")}
    expressions = [block.code for block in BLOCKS if block.language == "promql"]
    assert len(expressions) > 5
    for expression in expressions:
        used = set()
        for name, selector in _NAME.findall(expression):
            assert name in known, name
            used |= known[name]
            assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)) <= known[name], expression
        grouped = re.search(r"\bby \(([^)]*)\)", expression)
        assert grouped is None or {label.strip() for label in grouped[1].split(",")} <= used, expression
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: the syntax of the expressions was not checked")
    rules = "".join(
        f"  - record: x{i}\n    expr: |\n" + "".join(f"      {line}\n" for line in expression.splitlines())
        for i, expression in enumerate(expressions)
    )
    path = tmp_path / "rules.yml"
    path.write_text(f"groups:\n- name: recipes\n  rules:\n{rules}", encoding="utf-8")
    done = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def update() -> None:
    """Write the outputs of all blocks into the page."""
    text = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as made:
        prepare(Path(made))

        def filled(found: re.Match[str]) -> str:
            if found[3] is None:
                return found[0]
            output = run(Block(found[1], found[2], found[3], 0), Path(made))
            return f"```{found[1]}\n{found[2]}```\n```text\n{output}```\n"

        PAGE.write_text(_BLOCK.sub(filled, text), encoding="utf-8")


if __name__ == "__main__":
    update()
