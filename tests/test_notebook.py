"""The examples of docs/library.md as a notebook: they run in Jupyter's kernel, and Chromium shows what it shows.

The notebook is made from the page, so there is one of them.
"""

from __future__ import annotations

import base64
import doctest
import os
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbformat")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient")
pytest.importorskip("ipykernel", reason="needs ipykernel")

from tests.support.browser import OpenedPage  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
#: Besides the page: what else a notebook shows.
_MORE = ("analysis", "report", 'report["summary"]', 'groups["groups"]')


def notebook_of(page: str) -> Any:
    """A notebook of a page: a cell for each of its examples (`>>>`), and its prose between them."""
    cells = []
    for part in doctest.DocTestParser().parse(page):
        if isinstance(part, str):
            prose = part.replace("```python", "").replace("```", "").strip()
            if prose:
                cells.append(nbformat.v4.new_markdown_cell(prose))
        elif part.source.strip():
            cells.append(nbformat.v4.new_code_cell(part.source.strip()))
    cells += [nbformat.v4.new_code_cell(code) for code in _MORE]
    return nbformat.v4.new_notebook(cells=cells)


@pytest.fixture(scope="module")
def executed() -> Any:
    """The notebook with its outputs."""
    notebook = notebook_of((ROOT / "docs" / "library.md").read_text(encoding="utf-8"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
        client = nbclient.NotebookClient(
            notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}
        )
        client.execute()
    return notebook


def shown(notebook: Any, code: str) -> dict[str, Any]:
    """What the notebook shows of the last cell with this code, by MIME type."""
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source == code][-1:]
    (output,) = [output for output in cell.outputs if output.output_type == "execute_result"]
    data: dict[str, Any] = output.data
    return data


def test_reports_analyses_and_figures_have_pictures(executed: Any) -> None:
    for code in ('report["throttle"]', *_MORE):
        data = shown(executed, code)
        assert "<" in data["text/html"], code
        assert "text/plain" in data, code
    figure = shown(executed, "plot.latency(report)")
    image = figure.get("image/svg+xml") or base64.b64decode(figure["image/png"])
    assert len(image) > 5_000


def test_cells_in_a_browser(executed: Any, chromium: Any, tmp_path: Path) -> None:
    """A page of cells, as a notebook shows them: every table is there, and nothing is wrong or loaded."""
    codes = ('report["throttle"]', *_MORE)
    cells = [f'<section class="output">{shown(executed, code)["text/html"]}</section>' for code in codes]
    page = tmp_path / "notebook.html"
    page.write_text(f'<!doctype html><meta charset="utf-8"><title>cells</title>{"".join(cells)}', encoding="utf-8")
    with OpenedPage(chromium, page, width=1200, height=900) as opened:
        first = opened.page.locator("section").first
        assert first.locator("table").first.is_visible()
        assert first.locator("tbody tr").count() >= 5
        assert "greedy-consumer" in first.inner_text()
        assert opened.page.locator("section").count() == len(codes)
        assert all(opened.page.locator("section").nth(i).bounding_box()["height"] > 20 for i in range(len(codes)))
        assert opened.page.locator("section").nth(2).locator("table").count() >= 5  # the whole report
        opened.page.screenshot(path=str(tmp_path / "notebook.png"), full_page=False)
    assert (tmp_path / "notebook.png").stat().st_size > 10_000
