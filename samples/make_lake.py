"""Make a lake: the Delta tables that this version of kafkatap writes for one sample, with records and no report.

    python samples/make_lake.py samples/lakes/schema-1

Make one with each number of the schema (`kafkatap/spark/output/delta_schema.py`), before it is raised. It needs Java.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CAPTURE = HERE / "live-4.4.pcap.zst"


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "lake"
        capture = shutil.copy(CAPTURE, folder)  # the table `files` has its path
        command = [sys.executable, "-m", "kafkatap", "spark", str(capture), "-o", str(made), "--records"]
        command += ["--master", "local[1]", "--no-progress"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for report in made.glob("report.*"):
            report.unlink()
        shutil.copytree(made, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
