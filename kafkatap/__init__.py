"""kafkatap: see what Kafka clients and brokers really say to each other.

>>> from kafkatap import analyze
>>> exchanges = analyze("capture.pcap").exchanges        # doctest: +SKIP

analyze(captures)        the tables of some captures, as Arrow
Analysis                 what it returns
UnreadableCaptureError   what it raises when none of the captures can be read
__version__              the version that is installed

The parts: `kernels` (compiled functions over arrays), `reassembly` (captures to TCP streams), `dissector` (streams to
Kafka exchanges), `reports` (exchanges to reports). This package joins them:

engine     packets in, finished exchanges out: `assembly`, then the dissector; `endpoints` and `ended_connections`
           hold parts of its state
captures/  find, open and read captures
run        captures through the engine
selection  which exchanges the user selected
limits     how much a run keeps in memory
passes/    selected messages and records
show/      messages as lines, trees and JSON
analysis   the library; parquet, partitions: its tables as files
live/      packets from interfaces
spark/     many captures on Spark
commands/  the command line; complaints, installation: its errors and advice

kernel_modules names the modules with compiled kernels.

`import kafkatap` loads none of them: each is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .analysis import Analysis, UnreadableCaptureError, analyze

    __version__: str

__all__ = ["Analysis", "UnreadableCaptureError", "analyze"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from . import analysis

        return getattr(analysis, name)
    if name == "__version__":
        from .installation import own_version

        return own_version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
