"""kafkatap: see what Kafka clients and brokers really say to each other.

>>> from kafkatap import analyze
>>> exchanges = analyze("capture.pcap").exchanges        # doctest: +SKIP

analyze(captures)        the tables of some captures, as Arrow
Analysis                 what it returns
UnreadableCaptureError   what it raises when none of the captures can be read
__version__              the version that is installed

The parts: `kernels` (compiled functions over arrays), `reassembly` (captures to TCP streams), `dissector` (streams to
Kafka exchanges), `reports` (exchanges to reports); this package puts them together. Nothing is imported until asked.
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
