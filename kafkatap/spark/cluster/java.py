"""Find the Java that Spark will start, and report what is wrong with it before Spark fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

#: The oldest Java that Spark 4 runs on.
OLDEST = 17

_HOW_TO_INSTALL = f"""\
  Debian, Ubuntu    apt-get install openjdk-{OLDEST}-jre-headless
  RHEL, Fedora      dnf install java-{OLDEST}-openjdk-headless
  macOS             brew install openjdk@{OLDEST}
JAVA_HOME selects one of several."""


class SetupError(Exception):
    """Spark lacks something that it needs. The message says what, and what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its command, its major version (8, 11, 17 …), and all that `java -version` prints."""

    command: Path
    version: int
    output: str = field(default="", compare=False)


def require_java() -> Java:
    """The Java that Spark will start, from JAVA_HOME or else PATH. SetupError if there is none or if it is too old."""
    home = os.environ.get("JAVA_HOME")
    if home:
        command = Path(home) / "bin" / "java"
        if not os.access(command, os.X_OK):
            raise SetupError(
                f"JAVA_HOME is {home}, and there is no {command}.\nSet it to a Java {OLDEST} or later, or unset it:\n"
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
    output = _output_of(command)
    java = Java(command, _version_in(output, command), output)
    if java.version < OLDEST:
        by = "JAVA_HOME" if home else "PATH"
        raise SetupError(
            f"Spark needs Java {OLDEST} or later; {command} (found by {by}) is Java {java.version}.\n" + _HOW_TO_INSTALL
        )
    return java


def _output_of(command: Path) -> str:
    """The output of `java -version`, or why there is none."""
    try:
        done = subprocess.run(
            [command, "-version"], capture_output=True, text=True, errors="replace", timeout=60, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return done.stderr + done.stdout
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)


def _version_in(output: str, command: Path) -> int:
    """The version in the output of `java -version`: 17 for "17.0.15", 8 for "1.8.0_412"."""
    version = re.search(r'version "(?:1\.)?(\d+)', output)
    if version is None:
        raise SetupError(
            f"Spark needs Java {OLDEST} or later; {command} reports no version: "
            f"{' '.join(output.split())[:200] or 'no output'}\n" + _HOW_TO_INSTALL
        )
    return int(version.group(1))
