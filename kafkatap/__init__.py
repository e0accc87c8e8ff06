"""kafkatap: see what Kafka clients and brokers really say to each other.

>>> from kafkatap import analyze
>>> exchanges = analyze("capture.pcap").exchanges        # doctest: +SKIP

analyze(captures)        the tables of some captures, as Arrow
Analysis                 what it returns
compare(before, after)   what has changed from one capture to another
Comparison               what it returns
examine(captures)        how good captures are, and how to capture better
UnreadableCaptureError   what it raises when none of the captures can be read
__version__              the version that is installed

The parts: `kernels` (compiled functions over arrays), `reassembly` (captures to TCP streams), `dissector` (streams to
Kafka exchanges), `reports` (exchanges to reports). This package joins them:

engine/    packets in, finished exchanges out: assembly, TLS, then the dissector; with the options and limits of a run
captures/  find, open and read captures
run        captures through the engine
output_file  files that appear whole or not at all; replaceable: which files these may replace
selected_messages/  messages and records of the selected exchanges
show/      messages as lines, trees and JSON
library    `analyze`; parquet/: its tables as files
splits/    captures cut into splits, for Spark; shards/: connections shared out to several engines, for `--jobs`
comparison/  two captures, before and after a change
doctor/    how good captures are
request_log/  the brokers' own logs beside captures
live/      packets from interfaces
spark/     many captures on Spark
commands/  the command line; complaints, installation: its errors and advice

`import kafkatap` loads none of them: each is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .comparison.compared import Comparison, compare
    from .doctor import examine
    from .library import Analysis, UnreadableCaptureError, analyze

    __version__: str

__all__ = ["Analysis", "Comparison", "UnreadableCaptureError", "analyze", "compare", "examine"]


def __getattr__(name: str) -> Any:
    if name in ("Comparison", "compare"):
        from .comparison import compared

        return getattr(compared, name)
    if name == "examine":
        from .doctor import examine

        return examine
    if name in __all__:
        from . import library

        return getattr(library, name)
    if name == "__version__":
        from .installation import own_version

        return own_version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
