"""A script that leaves an iterator of the library unfinished ends all the same, at once and without complaint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import environment

UNFINISHED = {
    "messages": "it = a.messages(); next(it)",
    "messages without bodies": "it = a.messages(body=False); next(it)",
    "islice": "from itertools import islice; it = islice(a.messages(), 3); [next(it), next(it)]",
    "records": "it = a.record_tables(); next(it)",
    "in a module's global, in a cycle": "it = [a.messages()]; it.append(it); next(it[0])",
    "the end by sys.exit": "import sys; it = a.messages(); next(it); sys.exit()",
    "several": "its = [a.messages() for _ in range(3)]; [next(it) for it in its]",
    "a run": """
from kafkatap.engine.engine import Engine
from kafkatap.run import Run
it = Run(a.captures, Engine(), block_size=4096).batches()
next(it)""",
}


@pytest.mark.parametrize("use", UNFINISHED.values(), ids=UNFINISHED)
def test_the_interpreter_exits(use: str, samples: Path) -> None:
    capture = samples / "apache-4.3.pcap.zst"
    script = f"from kafkatap import analyze\na = analyze({str(capture)!r})\n{use}\nprint('used', flush=True)\n"
    try:
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment(), timeout=60, check=False
        )
    except subprocess.TimeoutExpired as expired:
        pytest.fail(f"it never ended, after: {expired.stdout!r}")
    assert (done.returncode, done.stdout) == (0, "used\n" if "sys.exit" not in use else "")
    assert [line for line in done.stderr.splitlines() if "compiling" not in line] == []


def test_an_exception_ends_it_too(samples: Path) -> None:
    script = (
        f"from kafkatap import analyze\nfor m in analyze({str(samples / 'apache-4.3.pcap.zst')!r}).messages(): 1 / 0"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment(), timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"
