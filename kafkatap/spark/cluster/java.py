"""The Java that Spark runs on: found as Spark finds it, and told what is wrong with it before Spark fails on it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

#: What Spark 4 runs on.
OLDEST = 17

_HOW_TO_INSTALL = f"""\
  Debian, Ubuntu    apt-get install openjdk-{OLDEST}-jre-headless
  RHEL, Fedora      dnf install java-{OLDEST}-openjdk-headless
  macOS             brew install openjdk@{OLDEST}
JAVA_HOME names the one to use where there are several."""


class SetupError(Exception):
    """Something that Spark needs is not there, or not as it has to be; the message says what, and what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java run-time: its command, and the first number of its version (8, 11, 17 ...)."""

    command: Path
    version: int


def require_java() -> Java:
    """The Java that Spark will start: of JAVA_HOME, else on PATH. SetupError where there is none or it is too old."""
    home = os.environ.get("JAVA_HOME")
    if home:
        command = Path(home) / "bin" / "java"
        if not os.access(command, os.X_OK):
            raise SetupError(
                f"JAVA_HOME is {home}, and there is no {command}.\nLet it name a Java {OLDEST} or later, or unset it:\n"
                + _HOW_TO_INSTALL
            )
    else:
        found = shutil.which("java")
        if found is None:
            raise SetupError(
                f"Spark needs Java {OLDEST} or later; there is no java on PATH, and JAVA_HOME is not set.\n"
                + _HOW_TO_INSTALL
            )
        command = Path(found)
    java = Java(command, _version_of(command))
    if java.version < OLDEST:
        by = "JAVA_HOME" if home else "PATH"
        raise SetupError(
            f"Spark needs Java {OLDEST} or later; {command} (found by {by}) is Java {java.version}.\n" + _HOW_TO_INSTALL
        )
    return java


def _version_of(command: Path) -> int:
    """What `java -version` tells, on standard error: 17 of "17.0.15", 8 of "1.8.0_412"."""
    try:
        done = subprocess.run(
            [command, "-version"], capture_output=True, text=True, errors="replace", timeout=60, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        said = done.stderr + done.stdout
    except (OSError, subprocess.SubprocessError) as error:
        said = str(error)
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if version is None:
        raise SetupError(
            f"Spark needs Java {OLDEST} or later; {command} does not tell its version: "
            f"{' '.join(said.split())[:200] or 'it says nothing'}\n" + _HOW_TO_INSTALL
        )
    return int(version.group(1))
