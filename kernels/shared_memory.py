"""Words that another processor writes or reads meanwhile, such as those by which Linux hands over the blocks of a ring.

`array` is uint8; `array[at]` has an address that is a multiple of 4. Bytes read by themselves would say nothing about
what else is written already: some processors, such as those of Arm, show writes of others in another order.
"""

from __future__ import annotations

from .declarations import helper
from .readers import le32


@helper
def load_acquire(array, at):  # type: ignore[no-untyped-def]
    """Read 32 bits, unsigned. What is read after it is as new as they are."""
    return le32(array, at)


@helper
def store_release(array, at, value):  # type: ignore[no-untyped-def]
    """Write 32 bits. Who reads them finds everything that was written, and no longer read, before."""
    for byte in range(4):
        array[at + byte] = (value >> (8 * byte)) & 0xFF
