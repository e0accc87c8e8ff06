"""Nagle's algorithm with delayed acknowledgements: a message that is written in pieces waits for an ACK."""

from __future__ import annotations

from collections.abc import Iterator

from kafkatap.dissector.dtypes import ANSWERED

from .. import units
from ..findings import Finding
from ..section_parts.counted import CLIENT, SPAN, counted, largest, total
from ..section_parts.section import SectionInput
from .parties import client_words
from .signature import Signature
from .sums import work_of_clients

#: A share of a client's time that a person notices.
_SHARE = 0.2
#: One such wait may be chance: a host sends its first ACKs at once, and delays one now and then.
_LEAST = 3

_WAITS = counted(
    "advice.nagle", CLIENT, lambda x: (x.nagle_ns > 0) & (x.outcome == ANSWERED),
    nagle_ns=total("nagle_ns"), exchanges=total(1), longest_ns=largest("nagle_ns"), **SPAN,
)  # fmt: skip


def _findings(given: SectionInput) -> Iterator[Finding]:
    work = work_of_clients(given)
    for row in given.rows(_WAITS.name):
        whole = work.get((row["client_id"], row["client_ip"]))
        lost, exchanges = row["nagle_ns"], row["exchanges"]
        if whole is None or exchanges < _LEAST or lost < _SHARE * whole.time_ns:
            continue
        share, mean = lost / whole.time_ns, lost // exchanges
        text = (
            f"{client_words(given.context, row['client_id'], row['client_ip'])}: {units.share(share)} of its time "
            f"passes until a delayed ACK lets the rest of a message go: {units.duration(mean)} in each of "
            f"{exchanges:,} exchanges"
        )
        numbers = {"nagle_ns": lost, "mean_ns": mean, "longest_ns": row["longest_ns"], "exchanges": exchanges}
        yield NAGLE.found(given, row, text, lost, {**numbers, "share": share}, (("by", "client"),))


NAGLE = Signature(
    "nagle",
    "Nagle's algorithm waits for delayed ACKs",
    "A message is sent in several segments. The first is small, and the next follows only after its ACK, 40 ms or "
    "more later, although the window is open (`nagle_ns`).",
    "socket.nagle.disable (TCP_NODELAY)",
    "Set `socket.nagle.disable=true` (librdkafka) or TCP_NODELAY on the client's sockets, or write each request in one "
    "piece.",
    f"it takes {_SHARE:.0%} of the client's time without waits for data and members, in {_LEAST} exchanges.",
    _findings,
    counts=(_WAITS,),
)
