"""What follows from what: a table of all causes. `folding` puts findings under each other by it.

A row reads: a finding of `effects` follows from one of `causes` if both are on the same client, broker, host or group
(`share`), and `when` holds; `choose` says which of several it is, if they explain enough. The first row that finds a
cause counts. A cause may follow from another one itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from kafkatap.dissector.kafka.error_codes import error_codes

from .. import kinds, units
from ..batch import Context
from ..finding_words import counted, listed, sentence
from ..findings import ERROR, NOTE, SEVERITIES, Finding, Party
from ..model import as_number
from ..parties import client_text
from .error_meanings import MEANINGS, OF_CHANGES
from .failure_findings import lasting

#: Clients note an event up to this much before the packet that shows it: clocks of capture points, and other brokers
#: that hear of it first.
BEFORE_NS = units.SECOND
#: Effects come within this after an event is over: clients repeat within seconds.
AFTER_NS = 10 * units.SECOND
#: Writes that fail for longer are named in the line of the outage. A move of leaders takes less.
_LONG_NS = 5 * units.SECOND
#: A cause explains most of what follows: at least this share of its time, or of its number.
MOST = 0.5


class Known(NamedTuple):
    """What causes are judged by, beside the findings. `unanswered`: requests without a response, by broker."""

    context: Context
    unanswered: Mapping[str, int] = {}


class Kinds(NamedTuple):
    """The findings of a section, without some ids."""

    section: str
    without: Collection[str] = ()


#: Whether a finding may follow from another one.
Test = Callable[[Finding, Finding], bool]
#: Of the causes that a finding may follow from, the one that it does.
Choice = Callable[[Finding, Iterable[Finding], Known], Finding | None]


def first(_: Finding, causes: Iterable[Finding], __: Known) -> Finding | None:
    return next(iter(causes), None)


class Fold(NamedTuple):
    """A row of the table; its parts are as above. `text`: the condition in words, for docs/findings.md. `told(cause,
    effects, known)`: the finding that is the cause, with what followed in its line."""

    effects: Collection[str]
    causes: Collection[str] | Kinds
    text: str
    share: str = ""
    when: Test = lambda effect, cause: True
    choose: Choice = first
    told: Callable[[Finding, Sequence[Finding], Known], Finding] | None = None


# ------------------------------------------------------------ whom, and when
# Of three ways to be in time: what an event sets off begins in its time; what is on a span that may have begun before
# overlaps with it; what it explains whole, as a setting would otherwise, is within it.


def named(finding: Finding, kind: str) -> set[Party]:
    """The parties of a kind; of clients, the hosts if it names none."""
    found = {party for party in finding.parties if party.kind == kind}
    return found or (named(finding, "host") if kind == "client" else found)


def _all_among(effect: Finding, cause: Finding, *kinds: str) -> bool:
    """Whether the cause names all that the effect names."""
    mine = {party for party in effect.parties if party.kind in kinds}
    return bool(mine) and mine <= set(cause.parties)


def _begins_in(effect: Finding, cause: Finding) -> bool:
    """Whether it begins in the time of the other, or shortly after it."""
    if effect.begin is None or cause.begin is None:
        return False
    end = cause.begin if cause.end is None and cause.id in kinds.MOMENTS else cause.end
    return effect.begin >= cause.begin - BEFORE_NS and (end is None or effect.begin <= end + AFTER_NS)


def _overlaps(effect: Finding, cause: Finding) -> bool:
    """Whether it is on the time of the other, or shortly after it. One without a time is."""
    if effect.begin is None or cause.begin is None:
        return True
    is_after = cause.end is not None and effect.begin > cause.end + AFTER_NS
    return not is_after and (effect.end or effect.begin) >= cause.begin - BEFORE_NS


def _is_within(effect: Finding, cause: Finding) -> bool:
    """Whether all of it is in the time of the other, or shortly after it."""
    if effect.begin is None or cause.begin is None:
        return False
    is_over = cause.end is not None and (effect.end or effect.begin) > cause.end + AFTER_NS
    return effect.begin >= cause.begin - BEFORE_NS and not is_over


# ------------------------------------------------------------ how much


def _number(finding: Finding, name: str) -> float:
    return finding.time_lost_ns if name == "time_lost_ns" else as_number(finding.numbers.get(name))


def _half(of_cause: str, of_effect: str) -> Test:
    """Whether one cause has most of a number of the effect."""
    return lambda effect, cause: _number(cause, of_cause) >= MOST * _number(effect, of_effect) > 0


def _most(name: str, is_first: bool = False) -> Choice:
    """The largest cause, or the first, if they have most of a number of the effect together."""

    def choose(effect: Finding, causes: Iterable[Finding], _: Known) -> Finding | None:
        found = list(causes)
        cost = sum(_number(cause, name) for cause in found)
        if not cost or cost < MOST * _number(effect, name):
            return None
        return found[0] if is_first else max(found, key=lambda cause: _number(cause, name))

    return choose


def _costliest(_: Finding, causes: Iterable[Finding], __: Known) -> Finding | None:
    return max(causes, key=lambda cause: cause.time_lost_ns, default=None)


# ------------------------------------------------------------ slow clients


def _is_of_both(effect: Finding, event: Finding) -> bool:
    """Whether an event was in the time of a slow client. If it names who waited, it has to name the client that lost
    most; else the broker at which the time passed. It names no brokers that waited."""
    is_named = effect.id != kinds.BETWEEN_BROKERS
    names = {party.name for party in event.parties if party.kind == "client" and is_named}
    client, brokers = effect.party("client"), (effect.party("broker"), event.party("broker"))
    is_other = client not in names if names and client is not None else None not in brokers and brokers[0] != brokers[1]
    if effect.parties[:1] and effect.parties[0].kind == "broker":  # it is on brokers, whichever clients waited
        is_other = is_other and not named(effect, "broker") & named(event, "broker")
    return not is_other and _overlaps(effect, event)


def outage_spans(events: Iterable[Finding], last: int) -> list[tuple[int, int]]:
    """The times of outages with what comes shortly after each: begin and end, ns. `last`: the end of the capture."""
    return [
        (event.begin - BEFORE_NS, last if event.end is None else event.end + AFTER_NS)
        for event in events if event.id in kinds.OUTAGES and event.begin is not None
    ]  # fmt: skip


def _is_behind(effect: Finding, cause: Finding) -> bool:
    """Whether requests wait behind others at brokers that are slow to clients of several hosts."""
    brokers = {party.name for party in cause.parties[:1] if party.kind == "broker"} and named(cause, "broker")
    at = named(effect, "broker")
    is_there = bool(brokers) and (at <= brokers if at else len(brokers) > 1)
    return is_there and _number(effect, "ahead_broker_share") >= MOST and _overlaps(effect, cause)


def _first_client(effect: Finding, cause: Finding) -> bool:
    """Whether the cause is on the client that lost most, too."""
    return ("client", effect.party("client")) in cause.parties


def _of_first_client(choose: Choice) -> Choice:
    """Choose, if one of the causes is on the client that lost most."""

    def of(effect: Finding, causes: Iterable[Finding], known: Known) -> Finding | None:
        found = list(causes)
        return choose(effect, found, known) if any(_first_client(effect, cause) for cause in found) else None

    return of


def _failed_login(effect: Finding, causes: Iterable[Finding], _: Known) -> Finding | None:
    """That of the client that lost most, if the logins of all fail."""
    failed = list(causes)
    if not named(effect, "client") <= {party for cause in failed for party in named(cause, "client")}:
        return None
    return next((cause for cause in failed if _first_client(effect, cause)), None)


# ------------------------------------------------------------ error codes, requests without a response


def _code(*names: str) -> Test:
    return lambda effect, cause: effect.numbers.get("error") in names and _begins_in(effect, cause)


def _code_of_topics(*names: str) -> Test:
    """One of some codes, of no other topics than the event's."""
    is_code = _code(*names)
    return lambda effect, cause: (
        is_code(effect, cause) and (not named(cause, "topic") or _all_among(effect, cause, "topic"))
    )


def _code_by_id(effect: Finding, deleted: Finding) -> bool:
    """Whether topics that have no name in the capture are unknown from the moment on at which a topic was deleted."""
    if not effect.numbers.get("is_by_id") or effect.begin is None or deleted.begin is None:
        return False
    return abs(effect.begin - deleted.begin) <= BEFORE_NS


def _says_code(effect: Finding, event: Finding) -> bool:
    """Whether the line of an event has the code."""
    return event.severity != NOTE and Party("error", str(effect.numbers.get("error"))) in event.parties


def _most_codes(effect: Finding, events: Iterable[Finding], _: Known) -> Finding | None:
    """The first event before the codes, if such events have most of them."""
    found = list(events)
    name, begin = f"{effect.numbers['error']}_codes", effect.begin
    if not found or sum(_number(event, name) for event in found) < MOST * _number(effect, "codes"):
        return None
    before = (e for e in found if begin is not None and e.begin is not None and begin >= e.begin - BEFORE_NS)
    return next(before, None)


def _lost_position(effect: Finding, resets: Iterable[Finding], _: Known) -> Finding | None:
    """Where the readers went, if that is known of all clients and topics."""
    found = list(resets)
    known = {party for reset in found for party in reset.parties}
    hit = {party for party in effect.parties if party.kind in ("client", "topic")}
    return max(found, key=lambda reset: _number(reset, "records")) if found and hit and hit <= known else None


def _follows(code: object, other: Finding) -> bool:
    """Whether an error code comes after that of another line."""
    meaning = MEANINGS.get(str(other.numbers.get("error")))
    return meaning is not None and code in meaning.follows


def _told_by_another(effect: Finding, other: Finding) -> bool:
    if not _follows(effect.numbers["error"], other):
        return False
    is_later = (effect.begin or 0) >= (other.begin or 0) - BEFORE_NS
    return is_later and _all_among(effect, other, "topic")


def _fenced_before(effect: Finding, other: Finding) -> bool:
    """Whether a code comes to a producer that another code said was fenced."""
    meaning = MEANINGS.get(str(other.numbers.get("error")))
    is_meant = meaning is not None and meaning.label == _FENCED and effect.numbers["error"] in meaning.follows
    is_later = effect.begin is not None and other.begin is not None and effect.begin > other.begin
    return is_meant and is_later and _all_among(effect, other, "client")


def _fences(effect: Finding, cause: Finding) -> bool:
    """Whether a code says that the producer was fenced, in the time of its transaction or shortly after it."""
    meaning = MEANINGS.get(str(cause.numbers.get("error")))
    return meaning is not None and meaning.label == _FENCED and _begins_in(cause, effect)


def _dies_of(effect: Finding, cause: Finding) -> bool:
    """Whether a client connects again as an error ends it: a start has some connections. Of codes that came to several
    it is not known how many each had."""
    many = _number(cause, "codes") * _CONNECTIONS_OF_A_START >= _number(effect, "connections") > 0
    return cause.severity == ERROR and many and named(effect, "client") == named(cause, "client")


def _most_at_broker(effect: Finding, outages: Iterable[Finding], known: Known) -> Finding | None:
    """The outage of the broker that has most of them, if such brokers have most of all."""
    found = [outage for outage in outages if outage.party("broker")]
    if not as_number(effect.numbers.get("unanswered")):  # all were in flight: its brokers are known
        mine = [outage for outage in found if outage.parties and named(effect, "broker") <= named(outage, "broker")]
        mine = [outage for outage in mine if _overlaps(effect, outage)]
        return max(mine, key=lambda outage: outage.begin or 0, default=None)
    brokers, lost = {outage.party("broker") for outage in found}, known.unanswered
    if not found or sum(n for name, n in lost.items() if name in brokers) < MOST * sum(lost.values()):
        return None
    return max(found, key=lambda f: (lost.get(str(f.party("broker")), 0), _number(f, "unanswered")))


# ------------------------------------------------------------ groups


def _holds_up(effect: Finding, causes: Iterable[Finding], known: Known) -> Finding | None:
    """A rebalance that was held up for most of the time since the group falls behind."""
    last, since = known.context.last or 0, effect.begin or 0
    for held in causes:
        if (last if held.end is None else held.end) - max(held.begin or 0, since) >= MOST * (last - since):
            return held
    return None


def _same_host(effect: Finding, cause: Finding) -> bool:
    hosts = {party.name for party in cause.parties if party.kind == "host"}
    return not hosts or effect.party("host") in hosts


def _is_of_client(effect: Finding, cause: Finding) -> bool:
    """Whether an outage names a client, or its host, in the time of what is on it."""
    mine = {party for party in effect.parties if party.kind in ("client", "host")}
    return bool(mine & set(cause.parties)) and _overlaps(effect, cause)


def _members(*hows: str) -> Test:
    """Whether it waited for members of one client only, that left in these ways."""
    return lambda effect, cause: effect.numbers.get("how") in hows and effect.party("client") == cause.party("client")


# ------------------------------------------------------------ what followed, in the line of the cause


def _with_groups(throttled: Finding, late: Sequence[Finding], _: Known) -> Finding:
    behind = [f'"{f.party("group")}" of client "{f.party("client")}"' for f in late]
    return throttled._replace(text=sentence([throttled.text, f"behind: group {listed(behind)}"]))


def _since(throttled: Finding, quotas: Sequence[Finding], _: Known) -> Finding:
    """The time in which the quota bit the first of them."""
    mine = (quota for quota in quotas if quota.party("client") == throttled.party("client"))
    quota = next(mine, None)
    return throttled if quota is None else throttled._replace(begin=quota.begin, end=quota.end)


def _with_failing(deleted: Finding, effects: Sequence[Finding], known: Known) -> Finding:
    """Who asks for the topic in vain."""
    failing = [effect for effect in effects if effect.severity == ERROR]
    if not failing:
        return deleted
    clients = list(dict.fromkeys(client_text(p.name) for f in failing for p in f.parties if p.kind == "client"))
    codes = sum(int(as_number(f.numbers["codes"])) for f in failing)
    begin, end = min(f.begin or 0 for f in failing), max(f.end or 0 for f in failing)
    since = lasting(begin, end, known.context)
    return deleted._replace(text=sentence([deleted.text, f"{listed(clients)} failed {codes:,} times on it", since]))


def _with_codes(error: Finding, effects: Sequence[Finding], known: Known, whom: str = "") -> Finding:
    names = listed([f"{_number(f, 'codes'):,} {f.numbers.get('error')}" for f in effects])
    last = max(f.end or 0 for f in effects)
    how_long = lasting(error.begin or 0, last, known.context)
    return error._replace(text=sentence([error.text, f"{names}{whom} followed", how_long]), end=last)


def _with_failing_requests(event: Finding, effects: Sequence[Finding], known: Known) -> Finding:
    """With the errors that clients did not mend at once, and their severity: what people notice of it."""
    failing = [f for f in effects if f.severity != NOTE]
    if not failing:
        return event
    whom = f" to {counted(int(max(_number(f, 'clients') for f in failing)), 'client')}"
    severity = min((f.severity for f in failing), key=SEVERITIES.index)
    return _with_codes(event, failing, known, whom)._replace(severity=severity)


def _with_producers(event: Finding, effects: Sequence[Finding], known: Known) -> Finding:
    """With the writes that failed for long in an outage: what people notice of it."""
    told = [_failed_writes(f, known) for f in effects if event.id in kinds.OUTAGES and _fails_to_write(f)]
    return event._replace(text=sentence([event.text, *told])) if told else event


def _fails_to_write(error: Finding) -> bool:
    long = error.begin is not None and error.end is not None and error.end - error.begin >= _LONG_NS
    return long and error.severity == ERROR and _number(error, "Produce_codes") > 0


def _failed_writes(error: Finding, known: Known) -> str:
    """`Produce of client "a" to topic t failed meanwhile: NOT_ENOUGH_REPLICAS 115 times; for 34.9 s (why)`."""
    whom, where = (
        listed(list(dict.fromkeys(words.format(p.name) for p in error.parties if p.kind == kind)))
        for kind, words in (("client", '"{}"'), ("topic", "{}"))
    )
    code = error_codes().get(int(_number(error, "code")))
    why = code.text if code is not None and "{" not in code.text else None
    return (
        f"Produce{whom and f' of client {whom}'}{where and f' to topic {where}'} failed meanwhile: "
        f"{error.numbers['error']} {int(_number(error, 'Produce_codes')):,} times "
        f"{lasting(error.begin or 0, error.end or 0, known.context)}{f' ({why})' if why else ''}"
    )


# ------------------------------------------------------------ the table

_SLOW = (*kinds.SLOW, kinds.BETWEEN_BROKERS)
_BROKERS_OUT = kinds.OUTAGES - {kinds.CUT_OFF}
_CHANGES = ("isr_shrank", "isr_grew", "coordinator_moved", kinds.REBALANCED)
_FAILED = (kinds.ERRORS, kinds.LOGIN)
_CODES = (kinds.ERRORS, kinds.DISK)
#: Advice that says what a slow client does, and not why; and on records that wait, not requests.
_NO_CAUSES = (
    "lagging_group", "unread_partition", "poison_record", "open_transaction", "unstable_offsets",
    "aborted_transactions", "fetch_waits", "dying_members", "held_rebalance", "offsets_set",
)  # fmt: skip
#: Advice on connections that are lost: the path drops idle ones, or those of an age; the broker closes those over a
#: limit, and sessions that expire.
_IDLE, _RESET, _LIMITED = "idle_dropped", "idle_reset", "connection_limit"
_EXPIRED, _AGED = "session_expired", "lifetime_limit"
_ON_CONNECTIONS = ("connection_each_message", "reconnect_storm")
_TIMEOUT = "request_timeout"
_DYING, _EXPELLED, _HELD = "dying_members", "expelled_members", "held_rebalance"
_BEHIND = ("lagging_group", "unread_partition")
_AT_ITS_TIME = "it began in that time, or up to 10 s after it"
#: A label of error codes (`error_meanings`).
_FENCED = "fenced"
#: A client that is started anew opens so many connections before it fails again, or fewer.
_CONNECTIONS_OF_A_START = 4
_LEADER_CODES = ("LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH")

FOLDS: tuple[Fold, ...] = (
    # events under events
    Fold([kinds.RETURNED], _BROKERS_OUT, "it is the end of that outage", "broker",
         lambda effect, cause: effect.begin == cause.end),
    Fold([kinds.LEADERS, *_CHANGES], kinds.OUTAGES, _AT_ITS_TIME, when=_begins_in),
    Fold([kinds.BURST], kinds.OUTAGES, f"{_AT_ITS_TIME}, and the code is one of moves and time-outs",
         when=lambda effect, cause: effect.numbers["code"] in OF_CHANGES and _begins_in(effect, cause)),
    Fold([kinds.STORM], kinds.OUTAGES, f"{_AT_ITS_TIME}, and connections were refused",
         when=lambda effect, cause: bool(effect.numbers.get("refused")) and _begins_in(effect, cause)),
    Fold(_CHANGES, [kinds.LEADERS], _AT_ITS_TIME, when=_begins_in),
    Fold([kinds.BURST], [kinds.LEADERS], f"{_AT_ITS_TIME}, and the code is one of moves and time-outs",
         when=lambda effect, cause: effect.numbers["code"] in OF_CHANGES and _begins_in(effect, cause)),
    # events of a disk that failed: the broker has no leaders any more, or ends
    Fold([*sorted(_BROKERS_OUT), kinds.LEADERS, "isr_shrank"], [kinds.DISK], f"of the same broker; {_AT_ITS_TIME}",
         "broker", _begins_in),
    Fold([kinds.BURST], [kinds.DISK], f"{_AT_ITS_TIME}, and the code follows from that one",
         when=lambda effect, cause: _follows(effect.party("error"), cause) and _begins_in(effect, cause)),
    # advice under advice
    Fold(_BEHIND, [_DYING, _EXPELLED], "of the same group", "group"),
    Fold(_BEHIND, ["offsets_set"], "of the same group and topic", "group",
         lambda effect, cause: _all_among(effect, cause, "topic")),
    Fold(["lagging_group"], ["poison_record"], "of the same group and topic", "group",
         lambda effect, cause: _all_among(effect, cause, "topic")),
    Fold(["refetch", "poison_record"], [_EXPELLED], "of the same client", "client"),
    Fold([_HELD], [_DYING], "it waited only for members of that client that died", "group", _members("dead")),
    Fold([_HELD], [_EXPELLED], "it waited only for members of that client that died or left", "group",
         _members("dead", "removed", "left")),
    Fold(["one_connection"], ["single_records"], "of the same client", "client"),
    Fold(["mtu_black_hole"], [_IDLE], "of the same client", "client"),
    # slow clients: under what says more of the same, then under what took most of their time
    Fold(["slow_network"], [kinds.LOSSY], "packets to the client that lost most are lost",
         when=lambda effect, cause: (
             (bool(effect.parties) and effect.parties[0] in cause.parties) or _first_client(effect, cause))),
    Fold(["slow_head_of_line"], ["slow_broker"], "its clients wait behind requests that are slow at those brokers",
         when=_is_behind),
    Fold(_SLOW, [kinds.THROTTLED], "all its clients are throttled, and that cost more",
         when=lambda effect, cause: _all_among(effect, cause, "client") and cause.time_lost_ns > effect.time_lost_ns),
    Fold(_SLOW, Kinds(kinds.ADVICE, _NO_CAUSES), "advice on its clients, the first of them too, has half of the time",
         when=lambda effect, cause: ("client", cause.party("client")) in effect.parties,
         choose=_of_first_client(_most("time_lost_ns"))),
    Fold(_SLOW, Kinds(kinds.EVENTS, (kinds.QUOTA, kinds.REBALANCED)),
         "in its time; on its client that lost most, or at its broker; such events have half of the time",
         when=_is_of_both, choose=_most("time_lost_ns")),
    Fold(["slow_head_of_line"], ["slow_follower"], "a request of the same client waited half as long as its longest",
         "client", _half("wait_max_ns", "total_max_ns")),
    Fold(["slow_head_of_line"], Kinds(kinds.EVENTS), "its first client waited half as long as its longest request",
         when=lambda effect, cause: (
             _first_client(effect, cause) and _half("longest_wait_ns", "total_max_ns")(effect, cause))),
    Fold(_SLOW, kinds.OUTAGES, "its clients are slow in outages, and not, or much less, at other times",
         when=lambda effect, cause: bool(effect.numbers.get("is_in_outages")) and _overlaps(effect, cause),
         choose=_costliest),
    Fold(_SLOW, [kinds.LOGIN], "it is SaslAuthenticate: brokers delay the answer to a login that fails",
         when=lambda effect, cause: effect.numbers.get("api") == "SaslAuthenticate", choose=_failed_login),
    # error codes: under the event that explains them
    Fold([kinds.ERRORS], ["position_reset"], "OFFSET_OUT_OF_RANGE, of readers and topics that are all known",
         when=lambda effect, cause: effect.numbers["error"] == "OFFSET_OUT_OF_RANGE", choose=_lost_position),
    Fold([kinds.ERRORS], [kinds.REBALANCED], "UNKNOWN_MEMBER_ID of members that timed out", when=lambda effect, cause: (
        bool(cause.numbers.get("timed_out")) and _all_among(effect, cause, "client")
        and _code("UNKNOWN_MEMBER_ID")(effect, cause))),
    Fold(_FAILED, Kinds(kinds.EVENTS, (kinds.BURST, kinds.REBALANCED, kinds.STORM)),
         "the event names the code, began before, and such events have half of the codes",
         when=_says_code, choose=_most_codes, told=_with_producers),
    Fold([kinds.ERRORS], ["same_instance"], "FENCED_INSTANCE_ID, of the same clients",
         when=lambda effect, cause: (
             effect.numbers["error"] == "FENCED_INSTANCE_ID" and _all_among(effect, cause, "client"))),
    Fold([kinds.ERRORS], ["same_address"], f"a code of brokers that do not lead, or coordinate; {_AT_ITS_TIME}",
         when=_code("NOT_LEADER_OR_FOLLOWER", "NOT_COORDINATOR")),
    Fold([kinds.ERRORS], [kinds.LEADERS], f"a code of moved leaders; {_AT_ITS_TIME}", when=_code(*_LEADER_CODES),
         told=_with_failing_requests),
    Fold([kinds.ERRORS], ["coordinator_moved"], f"NOT_COORDINATOR; {_AT_ITS_TIME}", when=_code("NOT_COORDINATOR")),
    Fold([kinds.ERRORS], [kinds.REBALANCED], f"REBALANCE_IN_PROGRESS; {_AT_ITS_TIME}",
         when=_code("REBALANCE_IN_PROGRESS")),
    Fold([kinds.ERRORS], ["topic_created"], f"the topic was unknown, or had no leader; {_AT_ITS_TIME}",
         when=_code_of_topics("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID", "LEADER_NOT_AVAILABLE")),
    Fold([kinds.ERRORS], ["topic_deleted"], f"the topic was unknown; {_AT_ITS_TIME}",
         when=_code_of_topics("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"), told=_with_failing),
    Fold([kinds.ERRORS], ["topic_deleted"], "a topic of which the id alone is known was unknown, from that second on",
         when=_code_by_id),
    Fold([kinds.ERRORS], [kinds.DISK], "the other code says why, on the same topics, from its time on",
         when=_told_by_another, told=_with_codes),
    Fold([kinds.ERRORS], [kinds.ERRORS], "the other code says that its producer was fenced before",
         when=_fenced_before, told=_with_codes),
    Fold(["open_transaction"], [kinds.ERRORS], "its producer was fenced", "client", _fences),
    Fold(["aborted_transactions"], _CODES, "it makes its requests fail, half as often as it aborts", "client",
         lambda effect, cause: (
             cause.severity == ERROR and _overlaps(effect, cause) and _half("codes", "aborts")(effect, cause))),
    # requests without a response, and connections that are made again
    Fold(_ON_CONNECTIONS, _CODES, "its clients end with that error, and are started anew", when=_dies_of),
    *(Fold([kinds.UNANSWERED], lost, "half of them were on its connections", choose=_most("unanswered"))
      for lost in ([_IDLE, _RESET], [_LIMITED], [_EXPIRED, _AGED])),
    Fold([kinds.UNANSWERED], [*kinds.OUTAGES, "wrong_port"], "half of them were at its broker",
         choose=_most_at_broker),
    *(Fold(_ON_CONNECTIONS, [lost], "it has all its clients", "client",
           lambda effect, cause: named(effect, "client") <= named(cause, "client")) for lost in (_IDLE, _LIMITED)),
    Fold(["request_flood"], _CODES, "it asks for Metadata after each such error, of which half as many came",
         "client", lambda effect, cause: (
             effect.numbers["api"] == "Metadata" and named(effect, "client") == named(cause, "client")
             and _half("codes", "requests")(effect, cause))),
    # events under the line that says more
    Fold([kinds.QUOTA], [kinds.THROTTLED], "of the same client", "client", told=_since),
    Fold([kinds.STORM], [*_ON_CONNECTIONS, _LIMITED], "of the same client", "client"),
    Fold([kinds.BURST], [*_FAILED, kinds.DISK], "of the same code",
         when=lambda effect, cause: effect.party("error") == cause.numbers["error"]),
    Fold([kinds.CUT_OFF], ["mtu_black_hole"], "of the same host", "host"),
    Fold([kinds.REBALANCED], [_DYING, _EXPELLED, _HELD], "of the same group, in its time", "group", _overlaps),
    Fold([kinds.LOSSY], [kinds.CUT_OFF], "of the same host, with half of the time", "host",
         choose=_most("time_lost_ns", is_first=True)),
    Fold([kinds.LOSSY], [kinds.CUT_OFF], "of the same host, all in its time", "host", _is_within),
    # what keeps a group from reading
    Fold(["lagging_group"], [_HELD], "of the same group, for half of the time", "group", choose=_holds_up),
    Fold(_BEHIND, ["mtu_black_hole"], "of the same client and host", "client", _same_host),
    Fold(["unread_partition"], kinds.OUTAGES, "in its time; it names the client, or its host", when=_is_of_client),
    Fold(["lagging_group"], [kinds.THROTTLED], "of the same client and host", "client", _same_host,
         told=_with_groups),
    Fold(_BEHIND, [_TIMEOUT], "of the same client and host, which gives up requests for data that it lets wait longer",
         "client", lambda effect, cause: bool(cause.numbers.get("wait_ns")) and _same_host(effect, cause)),
    Fold([kinds.REBALANCED], [_TIMEOUT], "that client alone caused them, in that time", when=lambda effect, cause: (
        effect.numbers.get("by") == cause.party("client") is not None and _overlaps(effect, cause))),
    # advice that an outage explains as well: requests wait behind those without an answer, and clients connect again
    Fold(["one_connection", _TIMEOUT, "reconnect_storm", "slow_follower", _DYING, _RESET], kinds.OUTAGES,
         "at the same broker, all in its time, or half of the time", "broker",
         lambda effect, cause: _is_within(effect, cause) or _half("time_lost_ns", "time_lost_ns")(effect, cause)),
    Fold(["one_connection", "single_records", "slow_follower"], [kinds.FROZE],
         "at the same broker, with half of the time", "broker", _half("time_lost_ns", "time_lost_ns")),
    Fold([kinds.FROZE], kinds.SILENCES, "at the same broker, all in its time, or half of the time", "broker",
         lambda effect, cause: _is_within(effect, cause) or _half("time_lost_ns", "time_lost_ns")(effect, cause)),
)  # fmt: skip
