"""What a capture cannot show: the comparisons that are left out because one side is cut, one-sided or incomplete.

A broker whose answers were not captured looks like one that does not answer, and an error code that the snap length cut
off looks like one that is gone. Such comparisons are not judged at all, so they are no findings.

All facts are from the pass that counts the exchanges. `kafkatap doctor` finds more, such as steps of the clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .. import units
from ..batch import Array, Context, endpoint
from ..commands import command, with_captures
from ..connection_columns import decryptions
from ..connection_words import D_NOT_TLS, H_COMPLETE, P_TLS, P_UNKNOWN
from ..counting.connection_counts import is_one_sided
from .leaves import Side
from .measures import WAITING
from .presence import TLS_SOFTWARE

#: The share that is missing from which on a comparison is left out: small ones hide only rare events.
_FEW, _MANY = 0.002, 0.05
#: The share of the connections with one direction from which on a capture has one direction.
_ONE_DIRECTION = 0.5
#: Less of the payload is encrypted, and not decrypted, on the other side.
_ENCRYPTED = 0.05
#: Requests within less of a side that is longer than this say nothing of rates.
_BUSY, _LONG_NS = 0.05, 3_600 * units.SECOND
#: Exchanges without which coarse times cannot be seen.
_FEWEST = 20

#: What is left out, in words. `topics`: comparisons of topics. `client rate`: rates of single clients.
_WORDS = {
    "error": "error codes", "throttled": "throttling", "throttle": "throttling", "records": "records",
    "topics": "topics", "total": "times", "broker": "broker times", **dict.fromkeys(WAITING[:1] + WAITING[2:], "waits"),
    "rtt": "round trips", "unanswered": "requests without a response", "refused": "refused connections",
    "retransmitted": "retransmissions", "size": "sizes", "rate": "rates", "client rate": "rates of clients",
}  # fmt: skip
#: What only one side has (`presence.ENTITIES`), in words.
_ENTITY_WORDS = {
    "broker": "brokers", "client": "clients", "topic": "topics", "API": "APIs", "version": "versions",
    "error code": "error codes", TLS_SOFTWARE: "TLS clients",
}  # fmt: skip
_TIMES = ("total", "broker", *WAITING, "rtt")
_WAITS = ("broker", *WAITING)
_ALL = tuple(_ENTITY_WORDS)
OF_EXCHANGES = tuple(what for what in _ENTITY_WORDS if what != TLS_SOFTWARE)


class Quality(NamedTuple):
    """`causes`: what is wrong with a side, in words. `measures`: those that are left out (keys of _WORDS). `entities`:
    what is not looked for on one side only."""

    causes: tuple[str, ...] = ()
    measures: frozenset[str] = frozenset()
    entities: frozenset[str] = frozenset()

    def and_(self, cause: str, measures: Iterable[str], entities: Iterable[str] = ()) -> Quality:
        """With another cause."""
        return self._replace(causes=(*self.causes, cause)).also(measures, entities)

    def also(self, measures: Iterable[str], entities: Iterable[str] = ()) -> Quality:
        """Without more measures and entities."""
        return self._replace(measures=self.measures.union(measures), entities=self.entities.union(entities))

    def allows(self, measure: str) -> bool:
        """Whether a measure is compared."""
        return measure.split()[0] not in self.measures

    def allows_rate(self, kind: tuple[str, ...]) -> bool:
        """Whether rates of a kind of cells are compared."""
        return "client" not in kind or "client rate" not in self.measures


def qualities(sides: tuple[Side, Side]) -> tuple[Quality, Quality]:
    """The quality of both sides."""
    encrypted = [side.context.encrypted_share for side in sides]
    coarse = [_is_coarse(side) for side in sides]
    found = []
    for n, side in enumerate(sides):
        quality = _lost(_one_sided(_cut(Quality(), side), side.context), side.context)
        if encrypted[n] >= encrypted[1 - n] + _ENCRYPTED:
            quality = quality.and_(
                f"{units.share(encrypted[n])} of its payload is encrypted and was not decrypted",
                ("rate",),
                OF_EXCHANGES,
            )
        if coarse[n] and not coarse[1 - n]:
            quality = quality.and_("its times are in whole ms", _TIMES)
        found.append(quality)
    return found[0], found[1]


def both(pair: tuple[Quality, Quality]) -> Quality:
    """What one side or the other does not allow."""
    a, b = pair
    return Quality((*a.causes, *b.causes), a.measures | b.measures, a.entities | b.entities)


def _cut(quality: Quality, side: Side) -> Quality:
    """Bodies and headers that the snap length, or a gap, cut off."""
    counts = side.counts
    requests = max(counts.requests, 1)
    cut = {"requests": counts.cut_requests, "responses": counts.cut_responses}
    named = [f"{units.share(n / requests)} of its {what}" for what, n in cut.items() if n > _FEW * requests]
    if named:
        has_codes = counts.cut_responses <= _FEW * requests
        cause = f"the snap length cut {_listed(named)}" if side.context.not_captured else (
            f"{_listed(named)} miss bytes"
        )  # fmt: skip
        has_throttles = counts.unthrottled <= _FEW * requests
        quality = quality.and_(cause, ("records", "topics"), ("topic",))
        quality = quality.also(() if has_codes else ("error",), () if has_codes else ("error code",))
        quality = quality.also(() if has_throttles else ("throttled", *_WAITS))
    if counts.nameless > _FEW * requests:
        share = units.share(counts.nameless / requests)
        quality = quality.and_(f"the client id of {share} is missing", ("client rate",), ("client", "version"))
    unread = _unread(side.context)
    if unread > _FEW:
        quality = quality.and_(
            f"{units.share(unread)} of its packets are cut and not known as Kafka", ("rate",), OF_EXCHANGES
        )
    if counts.first is not None and counts.last is not None:
        busy, whole = counts.last - counts.first, side.last - side.first
        if busy < _BUSY * whole and whole > _LONG_NS:
            within = f"its requests are within {units.duration(busy)} of {units.duration(whole)}"
            quality = quality.and_(f"{within}, which a packet with a wrong time may cause", ("rate",))
    ledger = side.context.ledger.get("requests", {})
    headless = ledger.get("header_not_captured", 0)
    if headless > _FEW * max(sum(n for part, n in ledger.items() if part != "total"), 1):
        quality = quality.and_(f"{headless:,} of its requests have no header", ("rate", "topics"), OF_EXCHANGES)
    without = _without_hello(side.context)
    if without > _FEW:
        quality = quality.and_(f"{units.share(without)} of its ClientHellos are missing or cut", (), (TLS_SOFTWARE,))
    return quality


def _without_hello(context: Context) -> float:
    """The share of the TLS connections, of those with a handshake of TCP, that have no whole ClientHello."""
    rows = context.connections
    rows = rows[(decryptions(rows) != D_NOT_TLS) & (rows["handshake"] == H_COMPLETE)]
    return float((rows["tls_ja4"] < 0).sum() / max(len(rows), 1))


def _unread(context: Context) -> float:
    """The share of the packets that are of connections which may be Kafka, but are cut too short to know."""
    rows = context.connections
    if not context.not_captured or not len(rows):
        return 0.0
    packets = rows["client_packets"] + rows["broker_packets"]
    is_unread = (rows["protocol"] == P_UNKNOWN) & (rows["client_bytes"] + rows["broker_bytes"] > 0)
    return float(packets[is_unread].sum() / max(int(packets.sum()), 1))


def _one_sided(quality: Quality, context: Context) -> Quality:
    """Connections of which one direction is missing."""
    rows = context.connections
    mask = one_sided(rows)
    packets = rows["client_packets"] + rows["broker_packets"]
    has_data = rows["client_bytes"] + rows["broker_bytes"] > 0
    whole = max(int(packets[has_data].sum()), 1)
    if int(packets[mask].sum()) <= _FEW * whole:
        return quality
    measures, entities = {"unanswered", "refused", "opened"}, {"broker", "error code", "topic"}
    if int(packets[mask & (rows["client_packets"] == 0)].sum()) > _FEW * whole:
        measures.add("rate")
        entities.update(_ALL)
    if has_one_direction(rows):
        measures.update((*_TIMES, "error", "throttled", "size", "records", "retransmitted"))
    count = int(mask.sum())
    share = units.share(count / max(int(has_data.sum()), 1))
    return quality.and_(f"{share} of its connections were captured in one direction only", measures, entities)


def one_sided(rows: Array) -> Array:
    """Connections (CONNECTION_ROW) of which the capture misses a direction: bool (n,). A client that sends the same
    again and again has no answer, so these are not among them."""
    sent_again = (rows["broker_packets"] == 0) & (4 * rows["client_retransmitted_packets"] > rows["client_packets"])
    found: Array = is_one_sided(rows) & ~sent_again
    return found


def has_one_direction(rows: Array) -> bool:
    """Whether most connections (CONNECTION_ROW) have one direction only, so that no SYN has an answer."""
    has_data = rows["client_bytes"] + rows["broker_bytes"] > 0
    return bool(one_sided(rows).sum() > _ONE_DIRECTION * has_data.sum())


def _lost(quality: Quality, context: Context) -> Quality:
    """Packets that the capture dropped, and bytes in no packet."""
    rows = context.connections
    gaps = int((rows["client_gap_bytes"] + rows["broker_gap_bytes"]).sum())
    payload = int((rows["client_bytes"] + rows["broker_bytes"]).sum())
    drops = sum(file.drops or 0 for file in context.files)
    lost = [(gaps / max(gaps + payload, 1), "of its bytes are in no packet"),
            (drops / max(drops + context.packets, 1), "of its packets were dropped")]  # fmt: skip
    for share, words in lost:
        if share > _FEW:
            badly = (*_TIMES, "rate", "opened", "size", "records") if share >= _MANY else ()
            quality = quality.and_(
                f"{units.share(share)} {words}", ("unanswered", "refused", "retransmitted", *badly),
                _ALL if share >= _MANY else ("broker",),
            )  # fmt: skip
    return quality


def _is_coarse(side: Side) -> bool:
    return side.counts.requests >= _FEWEST and not side.counts.fine_times


def encrypted_brokers(context: Context) -> set[str]:
    """Addresses and ports to which there are connections with TLS that were not decrypted."""
    rows = context.connections[context.connections["protocol"] == P_TLS]
    pairs = set(zip(rows["broker_ip"].tolist(), rows["broker_port"].tolist(), strict=True))
    return {endpoint(context.address(ip), port) for ip, port in pairs}


def incomplete(name: str, side: Side, quality: Quality) -> tuple[str, str] | None:
    """What is wrong with a side and what is therefore left out, in sentences; and a command that shows more. None if
    nothing is wrong."""
    if not quality.causes:
        return None
    left = dict.fromkeys(word for key, word in _WORDS.items() if key in quality.measures)
    if "total" in quality.measures:
        left.pop("broker times", None)
    if "rate" in quality.measures:
        left.pop("rates of clients", None)
    gone = _listed([word for key, word in _ENTITY_WORDS.items() if key in quality.entities])
    also = f" {gone[0].upper()}{gone[1:]} that appeared or disappeared are not listed." if gone else ""
    named = with_captures(command(side.context, None, (), "doctor"), [file.path for file in side.context.files])
    causes = _listed(list(quality.causes))
    measures = f" Not compared: {_listed(list(left))}." if left else ""
    return f"The side {name} is incomplete: {causes}.{measures}{also}", named


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
