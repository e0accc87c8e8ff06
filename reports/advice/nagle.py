"""Nagle's algorithm with delayed acknowledgements: a message that is written in pieces waits for an ACK."""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.dtypes import ANSWERED

from .. import units
from ..counting.count_forms import ADDRESS, OTHER, TEXT, CountForm
from ..counting.count_table import MAX, MIN, SUM
from ..findings import WARNING, Finding
from ..section_parts.gathered import Gathered
from ..section_parts.section import SectionInput
from ..section_parts.section_counts import Tally
from .parties import client_option, client_parties, client_words
from .signature import Signature
from .sums import work_of_clients

#: A share of a client's time that a person notices.
_SHARE = 0.2
#: One such wait may be chance: a host sends its first ACKs at once, and delays one now and then.
_LEAST = 3

_FORM = CountForm(
    "advice.nagle",
    {"client_id": TEXT, "client_ip": ADDRESS},
    {"nagle_ns": SUM, "exchanges": SUM, "longest_ns": MAX, "first": MIN, "last": MAX, "packet": MIN},
    {"client_id": OTHER, "client_ip": -1},
)


def _read(gathered: Gathered, tally: Tally) -> None:
    chosen = np.flatnonzero((gathered.column("nagle_ns") > 0) & (gathered.column("outcome") == ANSWERED))
    if not len(chosen):
        return
    rows = gathered.rows(chosen)
    tally.add(_FORM.name, {name: rows[name] for name in _FORM.keys}, {
        "nagle_ns": rows["nagle_ns"], "exchanges": 1, "longest_ns": rows["nagle_ns"], "first": rows["request_first"],
        "last": rows["response_last"], "packet": rows["request_packet_first"],
    })  # fmt: skip


def _findings(given: SectionInput) -> list[Finding]:
    context, work = given.context, work_of_clients(given)
    made = []
    for row in given.rows(_FORM.name):
        whole = work.get((row["client_id"], row["client_ip"]))
        lost, exchanges = row["nagle_ns"], row["exchanges"]
        if whole is None or exchanges < _LEAST or lost < _SHARE * whole.time_ns:
            continue
        share = lost / whole.time_ns
        who = client_words(context, row["client_id"], row["client_ip"])
        text = (
            f"{who}: {units.share(share)} of its time passes until a delayed ACK lets the rest of a message go: "
            f"{units.duration(lost // exchanges)} in each of {exchanges:,} exchanges"
        )
        made.append(Finding(
            NAGLE.id, WARNING, NAGLE.label, text, lost, row["first"], row["last"],
            {"nagle_ns": lost, "mean_ns": lost // exchanges, "longest_ns": row["longest_ns"],
             "exchanges": exchanges, "share": share},
            (row["packet"],), client_parties(context, row["client_id"], row["client_ip"]), NAGLE.setting, NAGLE.remedy,
            (("by", "client"), *client_option(context, row["client_id"])),
        ))  # fmt: skip
    return made


NAGLE = Signature(
    "nagle",
    "Nagle's algorithm waits for delayed ACKs",
    "A message is sent in several segments. The first is small, and the next follows only after its ACK, 40 ms or more "
    "later, although the window is open (`nagle_ns`).",
    "socket.nagle.disable (TCP_NODELAY)",
    "Set `socket.nagle.disable=true` (librdkafka) or TCP_NODELAY on the client's sockets, or write each request in one "
    "piece.",
    f"it takes {_SHARE:.0%} of the client's time without waits for data and members, in {_LEAST} exchanges.",
    _findings,
    (_FORM,),
    _read,
)
