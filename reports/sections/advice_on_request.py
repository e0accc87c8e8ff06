"""The signatures that read more than the usual report may: their findings are rows of the section `advice`."""

from .advice import ON_REQUEST_SECTION as SECTION

__all__ = ["SECTION"]
