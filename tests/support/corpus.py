"""Captures and definitions that are not part of the project: in the folder that the environment names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VARIABLE = "KAFKATAP_CORPUS"


def corpus_path(*parts: str) -> Path:
    """A file or folder of the corpus; skips the test where there is no corpus."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} names no folder with captures and Kafka's message definitions")
    return Path(folder, *parts)
