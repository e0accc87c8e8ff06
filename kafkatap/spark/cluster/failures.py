"""`explain`: a Spark error in a few lines, with the Python cause of a failed task and no Java stack."""

from __future__ import annotations

import re

from kafkatap.reports.units import safe

#: What to do if executors lack the package or have another copy.
SHIPPING = (
    "Install it for the executors' Python (spark.pyspark.python names that), or send it along: "
    "python -m kafkatap.spark.pack kafkatap.tar.gz, then --archive kafkatap.tar.gz (docs/spark.md)."
)
#: Around a sentence for the user in the error of a task.
MARK = "[kafkatap!]"
_LONGEST = 500


class OptionError(ValueError):
    """An option, a path or a column of the data source is wrong. `explain` prints the message alone, which is one
    line."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def explain(error: BaseException) -> str:
    """The cause of an error, and for a failed task the line of Python that raised it."""
    text = _text_of(error)
    cause = marked(text) or _of_option(text) or _of_worker(text) or _of_traceback(text) or _of_java(text)
    return "\n".join(safe(line)[:_LONGEST] for line in cause.splitlines()[:6])


def marked(text: str) -> str | None:
    """The sentence between two MARKs, or None."""
    parts = text.split(MARK)
    return parts[1] if len(parts) > 2 else None


def _text_of(error: BaseException) -> str:
    """The text of an error: py4j adds the Java exception, Connect its message."""
    try:
        text = str(error)
    except Exception as unprintable:  # py4j needs the Java process, which may have ended
        text = f"Spark's Java process ended ({unprintable})"
    return text or type(error).__name__


def _of_option(text: str) -> str | None:
    """The message of an OptionError."""
    found = re.search(rf"^{re.escape(OptionError.__module__)}\.{OptionError.__name__}: (.*)$", text, re.MULTILINE)
    return found and found[1].strip()


def _of_worker(text: str) -> str | None:
    """The cause if an executor's Python is missing, has another version, lacks the package, or was killed."""
    missing = re.search(r"No module named '(kafkatap|numpy|pyarrow|llvmlite|numba)\b", text)
    if missing:
        if "Failed to create Python data source" in text:
            return (
                "The Python that plans data sources beside Spark's driver (through Spark Connect: the server's) has no "
                f"{missing.group(1)}. Install kafkatap for it."
            )
        what = "kafkatap" if missing.group(1) == "kafkatap" else f"{missing.group(1)}, which kafkatap needs"
        return f"The executors' Python has no {what}. {SHIPPING}"
    versions = re.search(r"different version[^\d]*(\d+\.\d+)[^\d]*(\d+\.\d+)", text)
    if versions and "PYTHON_VERSION_MISMATCH" in text:
        worker, driver = versions.groups()
        return (
            f"The executors run Python {worker}, the driver Python {driver}: they have to be the same. "
            "spark.pyspark.python (or PYSPARK_PYTHON) names the executors' Python."
        )
    started = re.search(r'Cannot run program "([^"]*)"', text)
    if started:
        return (
            f"There is no Python {started.group(1)} on an executor: spark.pyspark.python (or PYSPARK_PYTHON) names it."
        )
    refused = re.search(r"kafkatap: (this archive .*)", text)
    if refused:
        return refused.group(1).strip()
    if "Python worker exited unexpectedly" in text:
        fault = re.search(r"Fatal Python error: (.*)", text)
        why = fault.group(1).strip() if fault else "it was killed, often for lack of memory, or crashed"
        return f"The Python process of a task ended early: {why}."
    return None


def _of_traceback(text: str) -> str | None:
    """The exception of the last Python traceback, and its innermost line outside pyspark."""
    _, found, trace = text.rpartition("Traceback (most recent call last):\n")
    if not found:
        return None
    lines = trace.splitlines()
    frames = [line.strip() for line in lines if re.match(r'\s+File "', line)]
    cause: list[str] = []
    for line in lines:
        if cause:
            if not line.strip() or line.startswith(("\tat ", " SQLSTATE", "Driver stacktrace")) or "SQLSTATE" in line:
                break
            cause.append(line)
        elif line[:1].strip():
            cause.append(line)
    if not cause:
        return None
    own = [f for f in frames if "/pyspark/" not in f and "pyspark.zip" not in f] or frames
    place = re.match(r'File "([^"]*)", line (\d+), in (.*)', own[-1]) if own else None
    where = f"\n  in {place.group(3)}, {place.group(1)}, line {place.group(2)}" if place else ""
    return "\n".join(cause[:4]) + where


def _of_java(text: str) -> str:
    """The Java message of the failed task or of the last cause, without classes, frames and codes."""
    failure = re.search(r"most recent failure: Lost task [^(]*\(TID \d+\) \(([^)]*)\): (.*)", text)
    if failure:
        host, text = failure.group(1).split()[0], failure.group(2)
        return f"A task failed on {host}: {_plain(text)}"
    lines = [line for line in text.splitlines() if line.strip() and not re.match(r"\s+(at |\.\.\. \d+ more)", line)]
    noise = r"An error occurred while calling|JVM stacktrace|== SQL ==|([a-z]\w*\.)+[A-Z]\w*$"
    lines = [line for line in lines if not re.match(noise, line)]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return _plain(causes[-1]) if causes else "\n".join(_plain(line) for line in lines[:3])


def _plain(line: str) -> str:
    line = re.sub(r"^(: )?([a-z]\w*\.)+[A-Z][\w$]*(Exception|Error): ", "", line)
    return re.sub(r"^\[[A-Z_.]+\] |\s*SQLSTATE: \w+", "", line).strip()
