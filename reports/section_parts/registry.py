"""The sections of the report by name, and how to load those that are over facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .section import Section

#: The sections that need no facts, with the question of each: a report has them unless the user chooses.
USUAL = {
    "summary": "What matters most, and which command shows more of it?",
    "latency": "How long do requests take, and where does the time go?",
    "throttle": "Who is throttled, and for how long?",
    "errors": "What fails, and whom does it hit?",
    "clients": "Who is connected, with which software and versions?",
    "timeline": "When was it busy, slow or failing?",
    "not-decoded": "What could not be decoded?",
    "files": "Which captures were read?",
}
#: Signatures that read more than the usual report may, and those that are on states of several clients and brokers.
_FROM_ALL = "sections.advice:FROM_ALL_SECTION"
_ON_REQUEST_SECTIONS = ("sections.advice:ON_REQUEST_SECTION", _FROM_ALL)
#: The sections over facts by name: the modules with their SECTION, or another name. Some add to a usual section.
OVER_FACTS: dict[str, tuple[str, ...]] = {
    "auth": ("sections.auth",),
    "tls": ("sections.tls",),
    "clients": ("sections.client_activity",),
    "topics": ("sections.topics", "sections.topic_clients"),
    "timeouts": ("sections.timeouts",),
    "transactions": ("sections.transactions",),
    "upgrade": ("sections.upgrade",),
    "connections": ("sections.connections",),
    "groups": ("sections.groups",),
    "replication": ("sections.replication",),
    "throttle": ("sections.quotas",),
    "zones": ("sections.zones",),
    "events": ("sections.events",),
    "slowest": ("sections.slowest",),
    "broker-times": ("sections.broker_times",),
    "advice": ("sections.advice", *_ON_REQUEST_SECTIONS),
}
#: What each report with first lines counts, as these are made of the findings of sections. Their facts are of rare APIs
#: only, so that they cost little. It is no name of --sections: `load_sections` makes these modules of it.
_FIRST_LINES = "first-lines"
_OF_FIRST_LINES = ("sections.events", "sections.advice", "sections.tls")
FIRST = (_FIRST_LINES,)
#: What it counts besides for small input: signatures over facts of Produce and Fetch (`Signature.on_request`).
_ON_REQUEST = "first-lines-on-request"
#: What `kafkatap compare` counts besides: events, and transactions that hang or were fenced.
EVENT_SECTIONS = ("events-to-compare",)
#: What each run counts of connections: those that are seen twice count once.
SEEN_TWICE = ("connections-seen-twice",)
_TWINS = "sections.twin_findings:READING"
#: The sections of which a lake keeps counts, beside those of its rollup.
OF_LAKES = (
    "auth", "tls", "clients", "topics", "timeouts", "transactions", "upgrade", "groups", "replication", "throttle",
    "zones", "events", "broker-times", "advice",
)  # fmt: skip
#: Sections that make findings, with those that read for them: under a selection they learn from more than the selected
#: exchanges. States of brokers, groups and transactions are from everything that is read; advice on clients is from
#: what matches.
LEARN_FROM_ALL = frozenset(("events", "cluster-reading", "group-reading", "advice-from-all", "transaction-reading"))
LEARN_FROM_MATCHING = frozenset(("advice", "advice-on-request", "cluster-reading", "group-reading", "follower-reading"))
#: Bytes of captures, as stored, up to which input is small. Facts of Produce and Fetch take up to 60 % more CPU time:
#: 0.6 s for so many bytes of packets, which people do not wait for, but minutes for captures of many GB.
SMALL_INPUT = 256 << 20


#: Words for what sections answer.
_MEANT = {
    **dict.fromkeys(("network", "tcp", "rtt", "loss", "retransmissions"), "connections"),
    **dict.fromkeys(("quota", "quotas", "throttling"), "throttle"), **dict.fromkeys(("lag", "rebalances"), "groups"),
    **dict.fromkeys(("bytes", "records"), "topics"), **dict.fromkeys(("versions", "old"), "upgrade"),
    **dict.fromkeys(("slow", "exchanges"), "slowest"), **dict.fromkeys(("sasl", "login"), "auth"),
    **dict.fromkeys(("findings",), "summary"),
}  # fmt: skip


def section_list() -> str:
    """A line for each section with its question, for --sections help."""
    lines = []
    for name in section_names():
        questions = [section.question for section in load_sections([name]) if section.question]
        if name in USUAL:
            questions.insert(0, USUAL[name])
        lines.append(f"{name:<14} {' '.join(questions)}\n")
    return "".join(lines)


def section_names() -> list[str]:
    """All names, for --sections."""
    return [*USUAL, *(name for name in OVER_FACTS if name not in USUAL)]


def check_sections(names: Iterable[str]) -> None:
    """Raise ValueError unless all are names of sections."""
    known = section_names()
    for name in names:
        if name not in known:
            from difflib import get_close_matches

            near = [_MEANT[name]] if name in _MEANT else get_close_matches(name, known, 2)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
            raise ValueError(f"no section is called {name!r}; {hint}")


def chosen_sections(names: Sequence[str]) -> list[str]:
    """The names of --sections that `names` mean: each one or several with commas, in any case, or "all" alone.
    ValueError for an unknown one, with those like it."""
    found = [part.strip().lower() for name in names for part in name.split(",") if part.strip()]
    if found == ["all"]:
        return section_names()
    check_sections(found)
    return list(dict.fromkeys(found))


def load_sections(names: Iterable[str]) -> tuple[Section, ...]:
    """The sections over facts of these names: of `--sections`, or of `counted_sections`."""
    by_name = OVER_FACTS | {
        _FIRST_LINES: _OF_FIRST_LINES,
        _ON_REQUEST: _ON_REQUEST_SECTIONS,
        SEEN_TWICE[0]: (_TWINS,),
        EVENT_SECTIONS[0]: ("sections.events", _FROM_ALL),
    }
    found: dict[str, Section] = {}
    for place in (place for name in names for place in by_name.get(name, ())):
        section = _section(place)
        found |= {other: _section(other) for other in section.made_of} | {place: section}
    return tuple(found.values())


def _section(place: str) -> Section:
    """The section at `module` or `module:NAME` of this package."""
    module, _, name = place.partition(":")
    section: Section = getattr(import_module(f"..{module}", __package__), name or "SECTION")
    return section


def counted_sections(names: Iterable[str] | None, input_bytes: int | None = None) -> tuple[str, ...]:
    """The sections whose counts a report of these sections needs. None: the usual ones. `input_bytes`: of the captures,
    as stored; None: unknown, or without end."""
    first = FIRST if input_bytes is None or input_bytes > SMALL_INPUT else (*FIRST, _ON_REQUEST)
    wanted = first if names is None else tuple(names)
    return tuple(dict.fromkeys((*wanted, *(first if "summary" in wanted else ()), *SEEN_TWICE)))


class Needs(NamedTuple):
    """What sections need of the engine, as its arguments. `facts`: kinds of facts, by number."""

    facts: frozenset[int] = frozenset()
    measures: bool = False


def needs_of(names: Iterable[str] | None, with_connections: bool = False) -> Needs:
    """What a report of these sections needs: names of --sections, or of `counted_sections`. None: the usual ones.

    `with_connections`: the run makes the table `connections`. Its columns depend on no section, so TCP is measured.
    """
    sections = load_sections(counted_sections(names))
    if not sections:
        return Needs(measures=with_connections)
    from kafkatap.dissector.programs.fact_kinds import NUMBER_OF

    facts = frozenset(NUMBER_OF[name] for section in sections for name in section.every_fact)
    return Needs(facts, with_connections or any(section.measures for section in sections))
