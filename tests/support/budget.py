"""Processor seconds of the tests: by folder, and of the slowest ones, below the summary of each run.

Processes that a test starts and waits for count, and commands that it forks. What is shared, such as a Spark driver,
counts for its first test.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli import forked

#: Processor seconds that a usual run may take: twelve minutes of two cores, without lint and types.
BUDGET = 1_300
_SLOWEST = 10
_KEY = "processor_seconds"
_BEGIN = pytest.StashKey[float]()


def _seconds() -> float:
    return sum(os.times()[:4]) + forked.seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note the seconds of a test, with those of its fixtures."""
    begin = _seconds()
    item.stash[_BEGIN] = begin
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Put the seconds so far into the report of each phase, which goes to the process that sums up."""
    report: Any = yield
    if call.when == "teardown":
        report.user_properties.append((_KEY, _seconds() - item.stash[_BEGIN]))
    return report  # type: ignore[no-any-return]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the sums."""
    taken = {
        report.nodeid: value
        for reports in terminalreporter.stats.values() for report in reports
        for name, value in getattr(report, "user_properties", ()) if name == _KEY
    }  # fmt: skip
    total = sum(taken.values())
    if total < _SLOWEST:
        return
    folders = Counter[str]()
    for nodeid, seconds in taken.items():
        folders["/".join(nodeid.partition("::")[0].split("/")[:2])] += seconds
    terminalreporter.section(f"{total:,.0f} processor seconds")
    terminalreporter.line(", ".join(f"{folder} {seconds:,.0f}" for folder, seconds in folders.most_common()))
    for nodeid, seconds in Counter(taken).most_common(_SLOWEST):
        terminalreporter.line(f"{seconds:7.1f}  {nodeid}")
    if total > BUDGET and not config.getoption("--long"):
        terminalreporter.line(f"warning: more than the {BUDGET:,} processor seconds of a usual run", yellow=True)
