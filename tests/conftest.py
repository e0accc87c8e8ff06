"""Fixtures that all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.broker import KafkaBroker, missing

ROOT = Path(__file__).resolve().parent.parent

# The same examples in every run, however slow the machine; --hypothesis-profile default tries others each time.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


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
