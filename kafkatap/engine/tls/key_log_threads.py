"""A key log that several engines use, each in a thread of its own. So they know the sessions that others got."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from threading import RLock
from typing import Any

from .key_log import KeyLog


def share_key_log(key_log: KeyLog) -> None:
    """Let only one thread at a time use a key log."""
    lock = RLock()
    for name in dir(type(key_log)):
        if not name.startswith("_") and callable(getattr(type(key_log), name)):
            setattr(key_log, name, _locked(getattr(key_log, name), lock))


def _locked(call: Callable[..., Any], lock: RLock) -> Callable[..., Any]:
    @wraps(call)
    def locked(*given: Any) -> Any:
        with lock:
            found = call(*given)
            return iter(list(found)) if isinstance(found, Iterator) else found

    return locked
