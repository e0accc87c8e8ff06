"""Pages in a real Chromium: opened from a file, with everything that a test must not find collected."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def missing() -> str | None:
    """Why no browser can be started; None if one can."""
    from importlib.util import find_spec

    if find_spec("playwright") is None:
        return "needs playwright"
    return None if shutil.which("chromium") else "needs a browser: chromium is not installed"


@contextmanager
def started_browser() -> Iterator[Any]:
    """A Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class OpenedPage:
    """A page of a file. `problems`: messages on the console, errors, dialogs, and requests besides the page itself."""

    def __init__(self, browser: Any, path: Path, width: int = 1600, height: int = 1000, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        address = path.resolve().as_uri()
        self.page.on("console", lambda message: self.problems.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("dialog", self._dismiss)
        self.page.on(
            "request",
            lambda request: None if request.url in (address, "data:,") else self.problems.append(request.url[:200]),
        )
        self.page.goto(address)

    def __enter__(self) -> OpenedPage:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.context.close()
        if kind is None:
            assert self.problems == []

    def _dismiss(self, dialog: Any) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def texts(self, selector: str) -> list[str]:
        """The texts of all elements that match."""
        found: list[str] = self.page.locator(selector).all_inner_texts()
        return found
