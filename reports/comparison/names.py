"""Names of clients as they are compared: without their random parts; and which of many clients are compared."""

from __future__ import annotations

import re
from zlib import crc32

#: Numbers of hashes: a client is compared if that of its name is below a limit.
HASHES = 1 << 32
#: The name of the clients that are not compared one by one, and of their topics.
OTHERS = "(other)"
_RANDOM = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<![0-9a-zA-Z])[0-9a-f]{16,}(?![0-9a-zA-Z])"
)


def masked(client: str | None) -> str | None:
    """A client id without the parts that are random."""
    return client if client is None or len(client) < 16 else _RANDOM.sub("*", client)


def hash_of(client: str | None) -> int:
    """A number below HASHES, the same for a client on all sides."""
    return crc32((masked(client) or "").encode("utf-8", "surrogatepass"))
