"""`ReadOptions`: how captures are decoded, whatever is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkatap.dissector.layouts.overlay import Definitions
    from kafkatap.reports.hosts.host_table import HostTable

    from .limits import Limits
    from .tls.key_log import KeyLog


class ReadOptions(NamedTuple):
    """`ports`: brokers listen there, a hint for connections whose start is not captured. `definitions`: layouts of a
    newer Kafka, laid over the built-in ones. `max_frame`: bytes; of larger messages only the head is kept (None:
    MAX_FRAME). `limits`: what a run keeps at most (None: the usual). `key_log`: the secrets of TLS connections to
    decrypt. `late`: a request that has waited for less ns when the capture ends is in flight (None: LATE_NS).
    `twins`: connections that are not counted, as others are the same once more; their keys, and those of the others.
    `hosts`: names of addresses."""

    ports: tuple[int, ...] = ()
    definitions: Definitions | None = None
    max_frame: int | None = None
    limits: Limits | None = None
    key_log: KeyLog | None = None
    late: int | None = None
    twins: Mapping[int, int] = {}
    hosts: HostTable | None = None


AS_USUAL = ReadOptions()
