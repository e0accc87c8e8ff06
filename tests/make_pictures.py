"""Makes the pictures of the README from a sample: `python -m tests.make_pictures`. It needs Chromium."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafkatap.engine.engine import Engine
from kafkatap.kernels import store
from kafkatap.live.governor import Governor
from kafkatap.live.monitor import Monitor
from kafkatap.live.screen.columns import Line
from kafkatap.live.screen.drawing import Drawing, screen_lines
from kafkatap.live.screen.look import Kept, Live
from kafkatap.live.screen.page_sections import sections
from kafkatap.live.screen.pages import Page, Shown
from tests.live.support import SECOND, FileSource
from tests.support.browser import started_browser

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
SAMPLE = "samples/apache-4.3.pcap.zst"
#: The terminal in which reports and the live screen are shown.
COLUMNS, REPORT_LINES, SCREEN_LINES = 112, 38, 24
_PAGE = """<style>html {{ background: #14161a }} body {{ margin: 0; width: max-content }}
pre {{ font: 13px/1.35 "DejaVu Sans Mono", monospace; margin: 0; padding: 14px 18px; color: #dfe2e6 }}</style>{}"""


def main() -> None:
    """Write the pictures."""
    PICTURES.mkdir(exist_ok=True)
    store.prepare()
    with started_browser() as browser, tempfile.TemporaryDirectory() as folder:
        _shoot(browser, Path(folder), "report", _terminal(_report_text()))
        _shoot(browser, Path(folder), "live", _terminal(_screen_text()))
        page = Path(folder) / "page.html"
        subprocess.run(
            [sys.executable, "-m", "kafkatap", "report", "--utc", "--html", page, SAMPLE],
            cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        opened = browser.new_context(viewport={"width": 1280, "height": 860}).new_page()
        opened.goto(page.as_uri())
        _save("page", opened.screenshot())
        _save_frames("page-click", _clicks(opened))


def _clicks(page: Any) -> list[bytes]:
    """From a mark in the picture to the waterfall of an exchange and its packets."""
    page.set_viewport_size({"width": 1000, "height": 700})
    page.locator("#picture").scroll_into_view_if_needed()
    page.evaluate("document.querySelector('#picture').scrollIntoView()")
    frames = [page.screenshot()]
    mark = page.locator("#picture .mark", has_text="throttled").locator(".flag")
    mark.hover()
    frames.append(page.screenshot())
    mark.click()
    page.mouse.move(0, 0)
    page.evaluate("document.querySelector('#exchanges').scrollIntoView()")
    frames.append(page.screenshot())
    return frames


def _report_text() -> Any:
    from rich.text import Text

    done = subprocess.run(
        [sys.executable, "-m", "kafkatap", "report", "--utc", "--color", "always", "--width", str(COLUMNS), SAMPLE],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    prompt = f"$ kafkatap report --utc {SAMPLE}\n"
    return Text.from_ansi(prompt + "\n".join(done.stdout.splitlines()[:REPORT_LINES]))


def _screen_text() -> Any:
    """The live screen, once half of the sample was played."""
    from rich.text import Text

    kept, source = Kept(), FileSource(str(ROOT / SAMPLE), SECOND)
    monitor = Monitor(source, Engine(all_results=True), sinks=kept.sinks, clock=source.clock, governor=Governor(None))
    for _ in range(30):
        time.sleep(0.5)  # as if live, so that the share of a processor is that of a live capture
        source.wait(0)
        monitor.step()
    page, shown = Page("table", "client"), Shown(window=10, utc=True)
    drawing = Drawing(page, 1, shown, monitor.status, sections(page, Live(monitor, kept), shown))
    lines: Sequence[Line] = screen_lines(drawing, COLUMNS, SCREEN_LINES)
    return Text("\n").join(Text.assemble(*line) for line in lines)


def _terminal(text: Any) -> str:
    """A text with styles as the HTML of a dark terminal."""
    from rich.console import Console
    from rich.terminal_theme import MONOKAI

    console = Console(record=True, width=200, file=io.StringIO(), color_system="truecolor", force_terminal=True)
    console.print(text, no_wrap=True, soft_wrap=True)
    return _PAGE.format(console.export_html(theme=MONOKAI, inline_styles=True, code_format="<pre>{code}</pre>"))


def _shoot(browser: Any, folder: Path, name: str, html: str) -> None:
    path = folder / f"{name}.html"
    path.write_text(f'<meta charset="utf-8">{html}', "utf-8")
    opened = browser.new_context(viewport={"width": 1000, "height": 600}).new_page()
    opened.goto(path.as_uri())
    _save(name, opened.locator("pre").screenshot())


def _save_frames(name: str, pngs: Sequence[bytes]) -> None:
    """Write pictures that follow one another, 2 s each."""
    from PIL import Image

    first, *others = (
        Image.open(io.BytesIO(png)).convert("RGB").quantize(64, dither=Image.Dither.NONE) for png in pngs
    )  # fmt: skip
    path = PICTURES / f"{name}.gif"
    first.save(path, save_all=True, append_images=others, duration=2000, loop=0, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size >> 10} KiB")


def _save(name: str, png: bytes) -> None:
    """Write a picture with few colours, which takes a third of the room."""
    from PIL import Image

    picture = Image.open(io.BytesIO(png)).convert("RGB").quantize(64, dither=Image.Dither.NONE)
    path = PICTURES / f"{name}.png"
    picture.save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main()
