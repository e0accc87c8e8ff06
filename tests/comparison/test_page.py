"""Comparisons as HTML: the page in a real browser, and what a notebook shows; hostile names do nothing in either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkatap.commands.command_parser import parse
from kafkatap.commands.compare.command import run
from kafkatap.comparison.compared import Comparison
from kafkatap.reports.comparison.comparison import Compared, compare_sides
from kafkatap.reports.comparison.html import comparison_page
from tests.support.browser import OpenedPage

from .loads import Load

SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "compare"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def compared() -> Compared:
    rates = {HOSTILE: 5.0, "billing": 5.0}
    slower = Load(rates, slower=lambda r: 2.0 if r.client == HOSTILE else 1.0)
    return compare_sides(Load(rates).side(1), slower.side(2))


@pytest.mark.parametrize(("width", "scheme"), [(1600, "light"), (400, "dark")])
def test_the_page_shows_the_findings(
    compared: Compared, chromium: Any, tmp_path: Path, width: int, scheme: str
) -> None:
    path = tmp_path / "compared.html"
    path.write_text(comparison_page(compared, captures=(["a.pcap"], ["b.pcap"]), utc=True), encoding="utf-8")
    with OpenedPage(chromium, path, width=width, scheme=scheme) as opened:
        (finding,) = opened.texts("#findings li")
        assert f"Client {HOSTILE}: slower" in finding
        assert "total time, median" in finding
        assert opened.page.title() == "a.pcap compared with b.pcap"
        assert any(HOSTILE in text for text in opened.texts("#table-findings td"))
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_notebook_shows_the_findings(compared: Compared) -> None:
    text = Comparison(compared)._repr_html_()
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "1 worse, 0 better, 0 different" in text


def test_the_command_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.html"
    captures = [str(SAMPLES / f"{name}.pcap.zst") for name in ("before", "quota")]
    assert run(parse(["compare", "--html", str(path), *captures])) == 0
    assert "throttled by a quota" in path.read_text(encoding="utf-8")
    assert f"wrote {path}" in capsys.readouterr().err
    assert run(parse(["compare", "--html", captures[0], *captures])) == 2
    assert run(parse(["compare", "--html", str(tmp_path / "no" / "page.html"), *captures])) == 2
    assert not (tmp_path / "no").exists()
    assert "would overwrite the capture" in capsys.readouterr().err
