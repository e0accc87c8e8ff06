"""`Selected`: the selection of a report, as its findings and the rows of its tables see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from .. import kinds
from ..addresses import broker_spellings
from ..batch import Context
from ..counting import tally
from ..counting.counts import ReportCounts
from ..counting.rollup import group_columns
from ..findings import Finding
from ..model import ReportTable, Row

if TYPE_CHECKING:
    from ..expressions.meaning import Atom, Expression, Node
    from ..expressions.verdicts import MatchedTexts

#: What a row is on, by the names that expressions have for it: texts of which one has to match.
Named = Mapping[str, Sequence[str]]
#: Tables of connections: a selection leaves out only rows.
_OF_CONNECTIONS = frozenset(("connections", "tls", "tls_software", "tls_certificates", "tls_failures"))
#: Names in expressions that are on clients.
_CLIENT = frozenset(("client", "client_id", "client_ip"))


class Clients(NamedTuple):
    """Those of the selected exchanges, by client_id and by address."""

    names: frozenset[str]
    addresses: frozenset[str]

    @classmethod
    def of(cls, counts: ReportCounts, context: Context) -> Clients:
        columns = group_columns(counts.groups, tally.GROUP_KEY)
        names = (context.text(number) for number in set(columns["client_id"].tolist()))
        addresses = (context.address(number) for number in set(columns["client_ip"].tolist()))
        return cls(frozenset(filter(None, names)), frozenset(filter(None, addresses)))

    def lack(self, row: Row) -> bool:
        """Whether a row is on another client."""
        if isinstance(name := row.get("client_id"), str):
            return name not in self.names
        return isinstance(address := row.get("client_ip"), str) and address not in self.addresses


class Selected(NamedTuple):
    """`text`: as the user wrote it. `span`: from when to when, ns since the epoch; None: any time. `expression`: holds
    for the selected exchanges; None: for any. `apis`: the keys of the only APIs that they can be of; None: of any.
    `read_apis`: the only ones that are read, which may be more."""

    text: str
    span: tuple[int, int] | None = None
    expression: Expression | None = None
    apis: frozenset[int] | None = None
    read_apis: frozenset[int] | None = None

    @classmethod
    def of(cls, text: str, span: tuple[int, int] | None, expression: Expression | None) -> Selected:
        """The selection with the APIs that its expression leaves."""
        if expression is None:
            return cls(text, span)
        from ..expressions import Condition
        from ..expressions.field_paths import fields_with_role

        apis = read_apis = Condition(expression).api_keys
        if _verdict(expression.root, _judge({"topic": ()}, expression)) is False:  # each exchange names a topic
            roles = (fields_with_role(role, expression.messages) for role in ("topic_name", "topic_id"))
            named = frozenset(api_key for fields in roles for api_key, _, _ in fields.places())
            apis = named if apis is None else apis & named
        return cls(text, span, expression, apis, read_apis)

    def has_time_of(self, finding: Finding) -> bool:
        """Whether something of a finding is within the time. One without a time is on the whole capture."""
        if self.span is None or finding.begin is None:
            return True
        end = finding.begin if finding.id in kinds.MOMENTS else finding.end
        return finding.begin < self.span[1] and (end is None or end >= self.span[0])

    def may_have(self, named: Named) -> bool:
        """Whether the expression can hold for an exchange with these names, as far as they decide it."""
        return self.expression is None or _verdict(self.expression.root, _judge(named, self.expression)) is not False

    def shown(self, table: ReportTable, clients: Clients) -> ReportTable:
        """A table without rows on what is not selected, and without numbers that only other APIs make known.

        An exchange may be on several topics or groups, of which one is selected. `clients`: of the selected exchanges;
        tables of connections have all. A table without rows says that the selection may be why.
        """
        kept = self._rows_on_selected(table, clients)
        if kept.rows or (not table.rows and table.name in _OF_CONNECTIONS):
            return kept
        return kept.replace(empty=f"{kept.empty} (the selection leaves out others)")

    def _rows_on_selected(self, table: ReportTable, clients: Clients) -> ReportTable:
        if self.expression is None:
            return table
        from ..expressions.meaning import ColumnAtom, atoms_of

        unknown = [n for n, c in enumerate(table.columns) if self.apis is not None and not self.apis.issuperset(c.apis)]
        names_clients = any(
            isinstance(a, ColumnAtom) and a.name.name in _CLIENT for a in atoms_of(self.expression.root)
        )
        rows = [
            row for row in table.rows
            if self.may_have(_names_in(named := table.named(row))) and not (names_clients and clients.lack(named))
        ]  # fmt: skip
        for n in unknown:
            rows = [(*row[:n], None, *row[n + 1 :]) for row in rows]
        return table if rows == table.rows else table.replace(rows=rows)


def _names_in(row: Row) -> Named:
    """What a row is on, by its columns. Names that it lacks are not known."""
    found: dict[str, Sequence[str]] = {}
    for name in ("topic", "group"):
        if isinstance(text := row.get(name), str):
            found[name] = (text,)
    if row.get("kind") in ("topic", "partition", "group") and isinstance(text := row.get("name"), str):
        found["group" if row["kind"] == "group" else "topic"] = (text,)
    if isinstance(broker := row.get("broker"), str):
        found["broker"] = broker_spellings(broker)
    return found


@lru_cache(4096)
def _holds(test: MatchedTexts, texts: tuple[str, ...]) -> bool:
    """Whether one of some texts passes a test. Rows repeat them."""
    return bool(test.on(texts).any())


def _judge(named: Named, expression: Expression) -> Callable[[Atom], bool | None]:
    """Whether an atom holds for something with these names; None: they do not decide it."""
    from ..expressions.field_paths import group_places
    from ..expressions.meaning import ColumnAtom, FieldAtom
    from ..expressions.verdicts import MatchedTexts

    groups = group_places(expression.messages)

    def judged(atom: Atom) -> bool | None:
        if isinstance(atom, FieldAtom):
            texts = named.get("group") if atom.places in groups else None
        else:
            texts = named.get(atom.name.name) if isinstance(atom, ColumnAtom) else None
        if texts is None or not isinstance(atom.test, MatchedTexts):
            return None
        return _holds(atom.test, tuple(texts))

    return judged


def _verdict(node: Node, judged: Callable[[Atom], bool | None]) -> bool | None:
    """Whether a node holds by the verdicts on its atoms; None: these do not decide it."""
    from ..expressions.meaning import Either, Every, Not

    if isinstance(node, Not):
        found = _verdict(node.item, judged)
        return None if found is None else not found
    if not isinstance(node, (Every, Either)):
        return judged(node)
    decides = isinstance(node, Either)
    verdicts = [_verdict(item, judged) for item in node.items]
    return decides if decides in verdicts else None if None in verdicts else not decides
