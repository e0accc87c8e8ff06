"""Fixtures that all tests share."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support import browser
from tests.support.broker import KafkaBroker, missing
from tests.support.sweeps import LONG, spread
from tests.support.wheel import build

ROOT = Path(__file__).resolve().parent.parent

# The same examples in every run, however slow the machine; --hypothesis-profile default tries others each time.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile(LONG, settings.get_profile("repeatable"))
settings.load_profile("repeatable")

pytest_plugins = ["tests.support.budget"]

if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, also in what the tests start
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # in the background of a shell without job control
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the exhaustive sweeps (minutes more)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: an exhaustive test, run with --long only")
    if config.getoption("--long"):
        settings.load_profile(LONG)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests marked `long` unless `--long` is set. pytest's last line counts them."""
    if config.getoption("--long"):
        return
    exhaustive = [item for item in items if item.get_closest_marker("long")]
    if exhaustive:
        config.hook.pytest_deselected(items=exhaustive)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.fixture(autouse=True, scope="session")
def _widths() -> Iterator[None]:
    """Text without a terminal is not cut, whatever the width of the terminal that runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "0")
        patch.setenv("KAFKATAP_PAGER", "")
        yield


@pytest.fixture(scope="session")
def sweep(pytestconfig: pytest.Config) -> Callable[[Sequence[Any], int], list[Any]]:
    """`sweep(cases, short)`: all cases with `--long`, else `short` of them: the first, the last, and evenly between."""

    def chosen(cases: Sequence[Any], short: int) -> list[Any]:
        if pytestconfig.getoption("--long") or len(cases) <= short:
            return list(cases)
        return spread(cases, short)

    return chosen


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(sdist, wheel), which all workers of pytest-xdist share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "dist"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return build(folder)


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of the sample captures."""
    return ROOT / "samples"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder with the long recordings and their truth files (`captures`), Kafka's definitions and facts."""
    named = os.environ.get("KAFKATAP_CORPUS")
    if not named:
        pytest.skip("needs the long recordings: KAFKATAP_CORPUS does not name their folder")
    if not (Path(named) / "captures").is_dir():
        pytest.skip(f"needs the long recordings: KAFKATAP_CORPUS={named} has no folder captures")
    return Path(named)


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real Apache Kafka broker, one for all tests of a run; skips where Java or Maven is missing."""
    why = missing()
    if why:
        pytest.skip(why)
    with KafkaBroker.start(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A real browser, one for all tests of a module; skips where it is missing. It ends with the module, because its
    event loop would be in the way of tests with one of their own."""
    why = browser.missing()
    if why:
        pytest.skip(why)
    with browser.started_browser() as started:
        yield started
