"""`Selection`: which exchanges the user asked for, the same for every command, the library and Spark.

A selection is a filter expression and a time window. It is built from options as nodes of an expression. It holds no
state of a run, so it may be kept, compared, pickled and sent to another machine.

>>> selection = Selection.of(filter="latency > 50ms", clients=["billing-*"])
>>> selection.text
"--client billing-* --filter 'latency > 50ms'"

A run uses it in two places. `engine_options` says what the engine has to decode, and what it can leave out. `apply`
yields the selected exchanges of the run's batches, each with all its rows.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from kafkatap.kernels.arrays import is_among
from kafkatap.reports.addresses import broker_spellings, canonical_broker, is_end
from kafkatap.reports.batch import Batch, Names
from kafkatap.reports.section_parts.registry import LEARN_FROM_ALL, LEARN_FROM_MATCHING
from kafkatap.reports.section_parts.selected import Selected
from kafkatap.reports.units import shell_word

if TYPE_CHECKING:
    from kafkatap.dissector.inspection import Inspector
    from kafkatap.dissector.layouts.overlay import Definitions
    from kafkatap.dissector.layouts.schema import MessageLayout
    from kafkatap.reports.expressions import Condition, Expression
    from kafkatap.reports.expressions.meaning import Node
    from kafkatap.reports.literals import Moment
    from kafkatap.reports.packet_places import PacketPlaces
    from kafkatap.reports.section_parts.section_counts import SectionCounts

    Messages = Mapping[tuple[int, int], MessageLayout]

Array = np.ndarray[Any, Any]

#: A time window without a start, and one without an end.
EARLIEST, LATEST = -(2**63), 2**63 - 1


class RunNames(Names, Protocol):
    """What numbers in a run's rows mean, and when its first packet came (None: no packet so far)."""

    @property
    def first(self) -> int | None: ...
    @property
    def packet_places(self) -> PacketPlaces | None: ...


class TimeWindow(NamedTuple):
    """Exchanges that begin at `start` or later, and before `end`. None: no limit."""

    start: Moment | None = None
    end: Moment | None = None

    @property
    def is_resolved(self) -> bool:
        """Whether both ends are absolute times."""
        return all(moment is None or moment.is_absolute for moment in (self.start, self.end))

    def check(self) -> None:
        """ValueError if it is known without a capture that nothing is between start and end."""
        start, end = self.start, self.end
        if start is None or end is None or end.ns > start.ns:
            return
        if (start.after_first, start.of_day, start.offset) == (end.after_first, end.of_day, end.offset):
            raise ValueError(f"nothing is between {start.text} and {end.text}: the window ends before it begins")

    def span(self, first: int) -> tuple[int, int]:
        """Start and end as ns since the epoch, for a capture whose first packet came at `first`."""
        start = EARLIEST if self.start is None else self.start.at(first)
        return start, LATEST if self.end is None else self.end.at(first)


class EngineOptions(NamedTuple):
    """What a selection needs of the engine; each is an argument of `Engine`."""

    all_results: bool
    inspectors: tuple[Inspector, ...]
    apis: frozenset[int] | None
    problems: bool


class Selection(NamedTuple):
    """Which exchanges are selected: those in the `window` for which the `expression` holds. None: any.

    `text`: the options as the user wrote them, and `beside_window` those beside the window. `bits_before`: bits of the
    exchanges' marks that another selection of the same run uses. `brokers`: of each option that names brokers, the
    canonical names; a broker has to be in all. `is_local`: only brokers at addresses of this host, which `kafkatap
    live` adds with `at_brokers`.
    """

    expression: Expression | None = None
    window: TimeWindow | None = None
    text: str | None = None
    bits_before: int = 0
    brokers: tuple[frozenset[str], ...] = ()
    is_local: bool = False
    beside_window: str | None = None

    @classmethod
    def of(
        cls,
        *,
        filter: str | None = None,
        clients: Sequence[str] = (),
        connections: Sequence[str] = (),
        topics: Sequence[str] = (),
        brokers: Sequence[str] = (),
        apis: Sequence[str] = (),
        groups: Sequence[str] = (),
        start: Moment | None = None,
        end: Moment | None = None,
        definitions: Definitions | None = None,
        utc: bool = False,
        sees_waiting: bool = False,
        reads_records: bool = False,
        is_local: bool = False,
    ) -> Selection:
        """A selection by options. Each option narrows it; values of one option are alternatives.

        `filter`: an expression (docs/filters.md), in which times without a zone are local, or with `utc` UTC.
        `clients`, `topics`: names with the wildcards * and ?. `connections`: their clients as ADDRESS:PORT. `brokers`:
        ADDRESS, ADDRESS:PORT or :PORT. `apis`: names or keys. `groups`: consumer groups, as in `group == NAME`.
        `sees_waiting`: it also judges requests that wait. `reads_records`: the run reads records, and the filter may
        name them.
        ValueError (of which `ExpressionError` is one) where an option is wrong, with the place.
        """
        messages = None if definitions is None else definitions.messages
        nodes = _nodes(clients, connections, topics, brokers, apis)
        nodes += _group_nodes(groups, messages)
        if filter is not None:
            from kafkatap.reports.expressions import parse_expression

            if not filter.strip():
                raise ValueError("the filter is empty: leave the option out to select everything (--filter help)")
            nodes.append(parse_expression(filter, messages, utc).root)
            if not sees_waiting:
                _refuse_waiting(nodes[-1])
            if not reads_records:
                _refuse_records(nodes[-1])
        window = None if start is None and end is None else TimeWindow(start, end)
        if window is not None:
            window.check()
        others = _as_written(
            [("client", c) for c in clients] + [("connection", c) for c in connections]
            + [("topic", t) for t in topics]
            + [("broker", b) for b in brokers] + ([("api", ",".join(apis))] if apis else [])
            + [("group", g) for g in groups]
            + [("filter", filter)]
        )  # fmt: skip
        times = _as_written([(name, each.text) for name, each in (("from", start), ("to", end)) if each is not None])
        text = " ".join(each for each in (times, others) if each) or None
        if is_local:
            text = f"--local-brokers-only {text or ''}".strip()
        named = (_broker_names(brokers),) if brokers else ()
        return cls(_all_of(nodes, text or "", messages), window, text, 0, named, is_local, others)

    def __bool__(self) -> bool:
        """Whether anything is left out."""
        return self.expression is not None or self.window is not None or self.is_local

    def at_brokers(self, brokers: Iterable[str]) -> Selection:
        """The same, and only these brokers: as with one more `--broker`, that names them. None selects nothing."""
        from kafkatap.reports.expressions.meaning import Every, Expression

        node, names = _broker_node(brokers), _broker_names(brokers)
        before = self.expression
        if before is None:
            expression = Expression(self.text or "", node, None)
        else:
            from dataclasses import replace  # few runs need it

            expression = replace(before, root=Every((before.root, node)))
        return self._replace(expression=expression, brokers=(*self.brokers, names))

    def has_broker(self, name: str) -> bool:
        """Whether the options that name brokers select the one that reports call `name`."""
        return not self.brokers or all(not names.isdisjoint(broker_spellings(name)) for names in self.brokers)

    @property
    def sees_waiting(self) -> bool:
        """Whether it names how long requests wait."""
        return self.expression is not None and _names_waiting(self.expression.root)

    @property
    def reads_records(self) -> bool:
        """Whether it names what is in records. It then selects exchanges that match with certain records."""
        return self.expression is not None and _names_records(self.expression.root)

    @property
    def is_of_records_alone(self) -> bool:
        """Whether its expression names nothing but records."""
        condition = self.condition()
        return condition is not None and condition.is_of_records_alone

    @property
    def is_resolved(self) -> bool:
        """Whether no time in it depends on the capture's first packet."""
        return (self.window is None or self.window.is_resolved) and (
            self.expression is None or self.expression.is_resolved
        )

    def at(self, first: int) -> Selection:
        """The same with absolute times, for a capture whose first packet came at `first` (ns since the epoch)."""
        if self.is_resolved:
            return self
        expression = None if self.expression is None else self.expression.at(first)
        from kafkatap.reports.literals import Moment

        window = None if self.window is None else TimeWindow(*map(Moment, self.window.span(first)))
        return self._replace(expression=expression, window=window)

    def beside(self, other: Selection) -> Selection:
        """The same for an engine that also runs with the inspectors of `other`."""
        condition = other.condition()
        return self if condition is None else self._replace(bits_before=condition.marks)

    def condition(self) -> Condition | None:
        """A new `Condition` of the expression; None where there is none."""
        if self.expression is None:
            return None
        from kafkatap.reports.expressions import Condition

        return Condition(self.expression, self.bits_before)

    @property
    def engine_options(self) -> EngineOptions:
        """What the engine has to decode for this selection. Each call returns new inspectors, for one engine."""
        condition = self.condition()
        if condition is None:
            return EngineOptions(False, (), None, False)
        inspectors = () if condition.probes is None else (condition.probes,)
        return EngineOptions(condition.needs_results, inspectors, condition.api_keys, condition.needs_problems)

    def apply(
        self, batches: Iterable[Batch], names: RunNames, sections: SectionCounts | None = None
    ) -> Iterator[Batch]:
        """The selected exchanges of a run's batches, with all their rows; see `Selector.apply`. `sections`: learn what
        `learning` says."""
        learners = () if sections is None else sections.learned
        return Selector(self, names).apply(batches, learners) if self else iter(batches)

    @property
    def learning(self) -> tuple[frozenset[str], ...]:
        """The sections whose findings are made of more than the selected exchanges: those that learn from all, and
        those that learn from all that match the expression, at any time."""
        if not self:
            return ()
        if self.expression is None and not self.is_local:
            return (LEARN_FROM_ALL | LEARN_FROM_MATCHING,)
        return (LEARN_FROM_ALL,) if self.window is None else (LEARN_FROM_ALL, LEARN_FROM_MATCHING)

    def shown(self, first: int | None) -> Selected | None:
        """What a report shows of a capture whose first packet came at `first`; None: everything."""
        if not self:
            return None
        here = self.at(first or 0)
        span = None if here.window is None else here.window.span(0)
        return Selected.of(self.text or "", span, here.expression)


EVERYTHING = Selection()


class Selector:
    """A selection at work in one run: it judges the batches of an engine that has the selection's `engine_options`.

    `names` may grow while batches are judged. They have to know the first packet's time by the first batch, unless the
    selection is resolved.
    """

    def __init__(self, selection: Selection, names: RunNames) -> None:
        self.selection = selection
        self._names = names
        condition = selection.condition()
        if condition is not None and names.packet_places is not None and names.first is None:
            names.packet_places.want(condition.packets)
        self._condition: Condition | None = None
        self._span: tuple[int, int] | None = None
        self._is_ready = False

    def select(self, batch: Batch) -> Array:
        """Which exchanges are selected, by the names that are known now: bool (n,)."""
        return self._in_window(batch, self._matching(batch))

    def _matching(self, batch: Batch) -> Array:
        """Which exchanges match the expression, at any time: bool (n,)."""
        self._prepare()
        if self._condition is None:
            return np.ones(len(batch.exchanges), bool)
        return self._condition.select(batch, self._names)

    def record_tables(self, batch: Batch) -> Array:
        """With which records the exchanges of a batch match (`Condition.record_tables`)."""
        self._prepare()
        assert self._condition is not None
        return self._condition.record_tables(batch, self._names)

    def matches_always(self, tables: Array) -> Array:
        """Which exchanges match whatever is in their records, or without any: bool (n,)."""
        assert self._condition is not None
        found: Array = tables == np.uint64(self._condition.every_verdict)
        return found

    def _in_window(self, batch: Batch, mask: Array) -> Array:
        if self._span is None:
            return mask
        begin = _began(batch.exchanges)
        found: Array = mask & (begin >= self._span[0]) & (begin < self._span[1])
        return found

    def pick(self, batch: Batch, learners: Sequence[SectionCounts] = ()) -> Batch | None:
        """The selected exchanges of a batch, by the names that are known now; None where there are none. Estimates are
        selected by the time window only. `learners`: get the exchanges that match, at any time."""
        if not self.selection:
            return batch
        matching = self._matching(batch)
        for learner in learners:
            learner.add(batch.picked(matching))
        mask = self._in_window(batch, matching)
        estimates = self._estimates(batch)
        if not mask.any() and estimates is None and batch.tokens is None:
            return None
        picked = (batch if mask.all() else batch.picked(mask))._replace(estimates=estimates)
        left_out = None if self._condition is None else self._condition.results_left_out(picked, self._names)
        return picked._replace(left_out=left_out)

    def _estimates(self, batch: Batch) -> Array | None:
        """The estimates of a batch within the time window. They have no client, topic or API to be selected by."""
        if batch.estimates is None or self._span is None:
            return batch.estimates
        at = batch.estimates["at"]
        found: Array = batch.estimates[(at >= self._span[0]) & (at < self._span[1])]
        return found if len(found) else None

    def apply(self, batches: Iterable[Batch], learners: Sequence[SectionCounts] = ()) -> Iterator[Batch]:
        """The selected exchanges of all batches, with all their rows. `learners`: the first one gets all exchanges,
        others get those that match the expression.

        Where topics are compared by name, an exchange on a topic of which only the id is known waits until the end.
        """
        from kafkatap.reports.expressions.exchange_columns import unnamed_topics

        held: list[Batch] = []
        for batch in batches:
            self._prepare()
            for learner in learners[:1]:
                learner.add(batch)
            if self._condition is not None and self._condition.names_topics:
                waits = _is_on_unnamed(batch, [unnamed_topics(rows, self._names) for rows in _topic_rows(batch)])
                if waits.any():
                    held.append(batch.picked(waits)._replace(estimates=None, tokens=None))
                    batch = batch.picked(~waits)
            picked = self.pick(batch, learners[1:])
            if picked is not None:
                yield picked
        for batch in held:
            picked = self.pick(batch, learners[1:])
            if picked is not None:
                yield picked

    def forget(self) -> None:
        """Judge names anew: their numbers have changed."""
        if self._condition is not None:
            self._condition.forget()

    def _prepare(self) -> None:
        if self._is_ready:
            return
        selection = self.selection
        if not selection.is_resolved:
            first = self._names.first
            assert first is not None, "a batch comes after the first packet"
            selection = selection.at(first)
        self._condition = selection.condition()
        if self._condition is not None:
            self._condition.packet_places = self._names.packet_places
        self._span = None if selection.window is None else selection.window.span(0)
        self._is_ready = True


#: A filter that is a group alone.
_LONE_GROUP = re.compile(r"""\s*group\s*==\s*(?:"([^"\\]+)"|'([^'\\]+)'|([\w.]+))\s*""")


def selection_of(options: argparse.Namespace, definitions: Definitions | None = None) -> Selection:
    """The selection that a command's options --filter, --client, --topic, --api, --broker, --from and --to make.

    ValueError (of which `ExpressionError` is one) where an option is wrong.
    """
    utc = bool(getattr(options, "utc", False))
    alone = _LONE_GROUP.fullmatch(options.filter or "")
    if alone is not None and getattr(options, "sections", None) == ["groups"] and not options.group:
        options.group, options.filter = [next(filter(None, alone.groups()))], None
    return Selection.of(
        filter=options.filter,
        clients=options.client or (),
        connections=getattr(options, "connection", None) or (),
        topics=options.topic or (),
        brokers=options.broker or (),
        apis=[name for names in options.api or () for name in names],
        groups=[] if shows_groups(options) else getattr(options, "group", None) or (),
        start=_moment(getattr(options, "start", None), utc),
        end=_moment(getattr(options, "end", None), utc),
        definitions=definitions,
        utc=utc,
        reads_records=getattr(options, "command", None) in ("records", "show"),
        is_local=bool(getattr(options, "local_brokers_only", False)),
    )


def shows_groups(options: argparse.Namespace) -> bool:
    """Whether --group leaves out rows and not exchanges: a report of the section `groups` alone. The Fetch requests of
    a group name no group, and its lag is from them."""
    return bool(getattr(options, "group", None)) and getattr(options, "sections", None) == ["groups"]


def _moment(text: str | None, utc: bool) -> Moment | None:
    if text is None:
        return None
    from kafkatap.reports.literals import read_moment

    return read_moment(text, utc)


def incident_selection(
    options: argparse.Namespace, shown: Selection, definitions: Definitions | None = None
) -> Selection | None:
    """The selection of --on, in a run that selects `shown` too; ValueError as for `selection_of`."""
    if options.write_pcap is None and getattr(options, "on_events", False):
        raise ValueError("--on-events says when packets are written: it needs --write-pcap FILE")
    if options.on is None:
        return None
    if options.write_pcap is None:
        raise ValueError("--on says when packets are written: it needs --write-pcap FILE")
    return Selection.of(filter=options.on, definitions=definitions, utc=options.utc, sees_waiting=True).beside(shown)


def _names_waiting(root: Node) -> bool:
    from kafkatap.reports.expressions.meaning import ColumnAtom, atoms_of
    from kafkatap.reports.expressions.names import WAITING

    return any(isinstance(atom, ColumnAtom) and atom.name.name == WAITING for atom in atoms_of(root))


def _names_records(root: Node) -> bool:
    from kafkatap.reports.expressions.meaning import RecordAtom, atoms_of

    return any(isinstance(atom, RecordAtom) for atom in atoms_of(root))


def _refuse_records(root: Node) -> None:
    if _names_records(root):
        raise ValueError("record.*: only `kafkatap records` and `kafkatap show` look into records")


def _refuse_waiting(root: Node) -> None:
    if _names_waiting(root):
        raise ValueError(
            "waiting: filters see requests once they are answered or given up; only --on of `kafkatap live` sees them "
            "while they wait. At the end of a capture: outcome == in_flight and waited > 5s"
        )


def _nodes(
    clients: Sequence[str],
    connections: Sequence[str],
    topics: Sequence[str],
    brokers: Sequence[str],
    apis: Sequence[str],
) -> list[Node]:
    """A node for each option that selects something."""
    if not (clients or connections or topics or brokers or apis):
        return []
    from kafkatap.reports.expressions.meaning import ColumnAtom, Either
    from kafkatap.reports.expressions.names import CLIENT_END, NAMES
    from kafkatap.reports.expressions.values import glob_pattern
    from kafkatap.reports.expressions.verdicts import MatchedTexts, Numbers

    def named(name: str, globs: Sequence[str]) -> Node:
        return ColumnAtom(NAMES[name], MatchedTexts(names=glob_pattern(f"--{name}", globs)))

    def at_ends(ends: Sequence[str]) -> Node:
        return ColumnAtom(NAMES[CLIENT_END], MatchedTexts(_broker_names(ends)))

    for connection in connections:
        if not is_end(connection):
            raise ValueError(f"{connection!r} is not the address and port of a client, such as 10.0.0.7:40122")
    nodes: list[Node] = []
    if apis:
        nodes.append(ColumnAtom(NAMES["api"], Numbers("==", tuple(sorted(api_keys(apis))))))
    if clients:
        ends = [client for client in clients if is_end(client)]
        nodes.append(Either((named("client", clients), at_ends(ends))) if ends else named("client", clients))
    if connections:
        nodes.append(at_ends(connections))
    if topics:
        nodes.append(named("topic", topics))
    return [*nodes, _broker_node(brokers)] if brokers else nodes


def _broker_names(brokers: Iterable[str]) -> frozenset[str]:
    return frozenset(map(canonical_broker, brokers))


def _broker_node(brokers: Iterable[str]) -> Node:
    """A node that holds for the exchanges of these brokers."""
    from kafkatap.reports.expressions.meaning import ColumnAtom
    from kafkatap.reports.expressions.names import NAMES
    from kafkatap.reports.expressions.verdicts import MatchedTexts

    return ColumnAtom(NAMES["broker"], MatchedTexts(_broker_names(brokers)))


def _group_nodes(groups: Sequence[str], messages: Messages | None) -> list[Node]:
    """A node that holds for the messages that name one of some groups."""
    if not groups:
        return []
    from kafkatap.reports.expressions.meaning import Either, named_in
    from kafkatap.reports.expressions.verdicts import MatchedTexts

    return [Either(tuple(named_in("group_id", MatchedTexts(frozenset(groups)), messages)))]


def _all_of(nodes: list[Node], text: str, messages: Messages | None) -> Expression | None:
    if not nodes:
        return None
    from kafkatap.reports.expressions.meaning import Every, Expression

    return Expression(text, nodes[0] if len(nodes) == 1 else Every(tuple(nodes)), messages)


def api_keys(names: Iterable[str]) -> frozenset[int]:
    """The keys of APIs by name (in any case) or number; ValueError for an unknown one, with those like it."""
    from kafkatap.dissector.layouts.catalog import api_names, key_of

    keys = set()
    for name in names:
        key = key_of(name)
        if key is None:
            from difflib import get_close_matches

            by_name = {known.lower(): known for known in api_names().values()}
            near = [by_name[n] for n in get_close_matches(name.lower(), by_name, 3)]
            raise ValueError(f"no API is called {name!r}" + (f"; did you mean {' or '.join(near)}?" if near else ""))
        keys.add(key)
    return frozenset(keys)


def _as_written(parts: Iterable[tuple[str, str | None]]) -> str | None:
    """Options as a command line has them; None where there are none."""
    written = [f"--{name} {shell_word(value, '' if name == 'filter' else '*?')}" for name, value in parts if value]
    return " ".join(written) or None


def _began(exchanges: Array) -> Array:
    """When exchanges began, int64 ns: with the request's first byte, an orphan response with its own."""
    from kafkatap.reports.expressions.exchange_columns import began_at

    return began_at(exchanges)


def _topic_rows(batch: Batch) -> list[Array]:
    return [rows for rows in (batch.results, batch.topics) if rows is not None]


def _is_on_unnamed(batch: Batch, unnamed: Sequence[Array]) -> Array:
    """Exchanges with a topic whose name is not known yet: bool (n,)."""
    numbers = [rows["exchange"][mask] for rows, mask in zip(_topic_rows(batch), unnamed, strict=True)]
    found = np.concatenate(numbers)
    if not len(found):
        return np.zeros(len(batch.exchanges), bool)
    return is_among(batch.exchanges["exchange"], found)
