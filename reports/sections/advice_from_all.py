"""The signatures that are on states, which several clients and brokers change: their findings are rows of `advice`."""

from .advice import FROM_ALL_SECTION as SECTION

__all__ = ["SECTION"]
