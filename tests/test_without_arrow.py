"""Without pyarrow: what needs no tables works, and what needs them says in one line what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkatap.installation import install_command


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


class Run:
    """Runs Python without pyarrow, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text("import sys\nsys.modules['pyarrow'] = None\n")

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(filter(None, (str(self.folder / "site"), os.environ.get("PYTHONPATH"))))
        return subprocess.run(
            [sys.executable, *arguments], env=os.environ | {"PYTHONPATH": path}, cwd=self.folder, capture_output=True,
            text=True, timeout=120, check=False,
        )  # fmt: skip

    def kafkatap(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "kafkatap", *arguments)


@pytest.mark.parametrize("words", [
    "report --sections all", "report --json", "report --csv made", "report --html made.html", "show -n 3",
    "show --tree -n 1", "show --json -n 3", "records -n 3", "records --json -n 3", "records -o made.csv", "doctor",
    "upgrade-check", "extract --api Metadata -o made.pcapng", "report -f 'topic ~ ^o'", "report --topic *",
])  # fmt: skip
def test_what_needs_no_tables_works(run: Run, samples: Path, words: str) -> None:
    command, *rest = (word.replace("+", " ") for word in words.replace("'topic ~ ^o'", "topic+~+'^o'").split())
    done = run.kafkatap(command, str(samples / "apache-4.3.pcap.zst"), *rest)
    assert (done.returncode, "pyarrow" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize(("words", "said"), [
    ("report CAPTURE --parquet made", "--parquet needs pyarrow"),
    ("records CAPTURE -o made.parquet", "Parquet needs pyarrow"),
    ("report s3://bucket/a.pcap", "s3://bucket: stores need pyarrow"),
    ("live --parquet made -i lo", "needs pyarrow"),
])  # fmt: skip
def test_what_needs_them_says_so(run: Run, samples: Path, words: str, said: str) -> None:
    done = run.kafkatap(*words.replace("CAPTURE", str(samples / "apache-4.3.pcap.zst")).split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert f"{said} ({install_command('arrow')})" in done.stderr
    assert not (run.folder / "made").exists()


def test_a_filter_that_needs_them_says_so(run: Run, samples: Path) -> None:
    done = run.kafkatap("report", str(samples / "apache-4.3.pcap.zst"), "-f", "topic ~ '(a|b)+c'")
    assert done.returncode == 2
    assert f"such a regular expression needs pyarrow ({install_command('arrow')})" in done.stderr


def test_the_library_reports_without_them(run: Run, samples: Path) -> None:
    code = """
import sys
from kafkatap import analyze
analysis = analyze(sys.argv[1])
report = analysis.report()
print(len(report["latency"].rows), len(list(analysis.messages())))
for read in (lambda: analysis.exchanges, lambda: analysis.ledger, lambda: analysis.records,
             lambda: next(analysis.record_tables()), report["latency"].to_arrow):
    try:
        read()
    except ImportError as error:
        print(error)
"""
    done = run.python("-c", code, str(samples / "apache-4.3.pcap.zst"))
    assert done.returncode == 0, done.stderr
    first, *errors = done.stdout.splitlines()
    assert all(int(number) > 0 for number in first.split())
    assert errors == [f"tables need pyarrow ({install_command('arrow')})"] * 4 + [
        f"tables of Arrow need pyarrow ({install_command('arrow')})"
    ]
