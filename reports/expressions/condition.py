"""`Condition`: apply an expression to batches of rows, and find what the engine need not decode.

An atom on columns is tested on all rows of a batch at once. The engine's probes have tested an atom on decoded
fields, and the result is a bit of the exchange's mark. Names of results have many values in an exchange; one match is
enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kafkatap.dissector.dtypes import KIND_GROUP
from kafkatap.dissector.layouts.catalog import api_name, api_names
from kafkatap.dissector.probes import MOST, Place, Probe, Probes
from kafkatap.dissector.programs.profiles import CARRY_RECORDS
from kafkatap.kernels.arrays import is_among

from ..batch import Array, Batch, Names, as_results, rows_of, uuid_text
from ..packet_places import PacketPlaces
from .exchange_columns import Spelling, string_text
from .expression_error import ExpressionError
from .field_paths import group_places
from .meaning import Atom, ColumnAtom, Either, Every, Expression, FieldAtom, Node, Not, RecordAtom, atoms_of
from .names import ERRORS, EXCHANGE, RESULT
from .verdicts import Floats, MatchedTexts, Numbers, Present, Values, Verdicts

#: Comparisons of records in an expression, at most: their verdicts are the bits of the numbers of an uint64's bits.
MOST_OF_RECORDS = 6
#: Names in expressions that say what a result is on.
_OWN_NAMES = frozenset(("topic", "topic_id", "partition", "name"))


class Condition:
    """Find the exchanges that match an expression. All its times are absolute.

    `first`: the first bit of the exchanges' marks that it uses. Other conditions of the run use the bits before.
    ExpressionError for more than 64 comparisons of decoded fields.
    """

    def __init__(self, expression: Expression, first: int = 0) -> None:
        self.expression = expression
        self._atoms = tuple(dict.fromkeys(atoms_of(expression.root)))
        fields = [atom for atom in self._atoms if isinstance(atom, FieldAtom)]
        self._first = first
        #: Where the run read the packets that `packet == N` names; None: compare with the first and last packets.
        self.packet_places: PacketPlaces | None = None
        self.marks: int = first + len(fields)  # number of bits in use
        if self.marks > MOST:
            raise ExpressionError(f"these are more than {MOST} comparisons on decoded fields", expression.text, 0)
        #: The comparisons of records. A record's verdicts on them are the bits of a number, the first one the lowest.
        self.record_atoms = tuple(atom for atom in self._atoms if isinstance(atom, RecordAtom))
        if len(self.record_atoms) > MOST_OF_RECORDS:
            reason = f"these are more than {MOST_OF_RECORDS} comparisons of records"
            raise ExpressionError(reason, expression.text, 0)
        self._bits = {atom: np.uint64(1 << number) for number, atom in enumerate(fields, first)}
        self._verdicts: dict[tuple[ColumnAtom, int], Verdicts] = {}
        self._names: Names | None = None  # the meaning of the numbers in the verdicts

    @property
    def needs_results(self) -> bool:
        """Whether RESULT rows of all responses are needed, and not only those with error codes (`all_results`)."""
        return any(isinstance(atom, ColumnAtom) and atom.name.per == RESULT for atom in self._atoms)

    @property
    def needs_problems(self) -> bool:
        """Whether the columns are compared that name the place of an error in a malformed message."""
        return any(isinstance(atom, ColumnAtom) and "_problem" in atom.name.name for atom in self._atoms)

    @property
    def names_topics(self) -> bool:
        """Whether topics are compared by name. Then an id whose name comes later leaves the result open."""
        return any(isinstance(atom, ColumnAtom) and atom.name.name == "topic" for atom in self._atoms)

    @cached_property
    def api_keys(self) -> frozenset[int] | None:
        """The known APIs that can match, or None for all. Bodies of other APIs need not be decoded."""
        keys = np.array(sorted(api_names()), np.int64)
        possible, _ = _possible(self.expression.root, keys, self.expression.messages is not None)
        return None if possible.all() else frozenset(keys[possible].tolist())

    @cached_property
    def probes(self) -> Probes | None:
        """The inspector that tests decoded fields, or None if no field is compared."""
        if not self._bits:
            return None
        return Probes([_probe(atom) for atom in self._bits], self.expression.messages, self._first)

    def select(self, batch: Batch, names: Names) -> Array:
        """The exchanges that match, or that match if they have certain records: bool (n,)."""
        if self.record_atoms:
            matching: Array = self.record_tables(batch, names) != 0
            return matching
        view = _View(self, batch, names)
        return _judged(self.expression.root, view.of_exchanges, len(batch.exchanges))

    @property
    def is_of_records_alone(self) -> bool:
        """Whether nothing but records decides."""
        return len(self.record_atoms) == len(self._atoms)

    @property
    def every_verdict(self) -> int:
        """A table (`record_tables`) that holds for every record."""
        return (1 << (1 << len(self.record_atoms))) - 1

    def record_tables(self, batch: Batch | None = None, names: Names | None = None) -> Array:
        """For each exchange, with which records it matches: uint64 (n,). Bit N is set if it matches with a record for
        which N has the bits of the true comparisons. `batch`: None for an expression of records alone; n is then 1."""
        view = None if batch is None or names is None else _View(self, batch, names)
        count = 1 if batch is None else len(batch.exchanges)
        known: dict[Atom, Array] = {}
        found = np.zeros(count, np.uint64)
        for number in range(1 << len(self.record_atoms)):
            for place, atom in enumerate(self.record_atoms):
                known[atom] = np.full(count, bool(number >> place & 1))

            def value(atom: Atom) -> Array:
                if atom not in known:
                    assert view is not None
                    known[atom] = view.of_exchanges(atom)
                return known[atom]

            holds = _judged(self.expression.root, value, count)
            found |= holds.astype(np.uint64) << np.uint64(number)
        return found

    def results_left_out(self, batch: Batch, names: Names) -> Array | None:
        """The results for whose own topic, partition, group or other name the expression does not hold: bool (rows,),
        of exchanges that match; None: none. An exchange that matches only by several names keeps all its results."""
        if self.record_atoms or not self._judges_results or not len(batch.results):
            return None
        requested = () if batch.topics is None else (as_results(batch.topics),)
        view = _View(self, batch._replace(results=np.concatenate((batch.results, *requested))), names)
        holds = _judged(self.expression.root, view.of_results, len(view.batch.results))
        is_named = np.zeros(len(batch.exchanges), bool)
        is_named[view.owner[holds & (view.owner >= 0)]] = True
        found: Array = (~holds & is_named[view.owner])[: len(batch.results)]
        return found if found.any() else None

    @cached_property
    def _judges_results(self) -> bool:
        return any(
            self.names_group(a) if isinstance(a, FieldAtom) else isinstance(a, ColumnAtom) and a.name.name in _OWN_NAMES
            for a in self._atoms
        )

    def names_group(self, atom: FieldAtom) -> bool:
        """Whether an atom tests the names of groups."""
        return isinstance(atom.test, MatchedTexts) and atom.places in self._groups

    @cached_property
    def _groups(self) -> tuple[frozenset[Place], frozenset[Place]]:
        return group_places(self.expression.messages)

    def on_rows(self, atom: ColumnAtom, rows: Array, names: Names) -> Array:
        """The rows of its table that match an atom by themselves: bool (n,)."""
        if names is not self._names:
            self._names, self._verdicts = names, {}
        found = np.zeros(len(rows), bool)
        packets = packets_of(atom)
        if packets and self.packet_places is not None:
            for packet in packets:
                found |= self.packet_places.holds(rows, packet)
            return found
        for part, (reading, spelling) in enumerate(atom.name.parts):
            for values in reading(rows, names):
                found |= self._on_values(atom, part, spelling, values, names)
        return found

    def _on_values(self, atom: ColumnAtom, part: int, spelling: Spelling | None, values: Values, names: Names) -> Array:
        given = np.ones(len(values.low), bool) if values.null is None else ~values.null
        if isinstance(atom.test, Present):
            return given & (values.low != 0) if atom.name.per == ERRORS else given
        if not isinstance(atom.test, MatchedTexts):
            return given & atom.test.on(values)
        assert spelling is not None
        spell = spelling
        verdicts = self._verdicts.setdefault((atom, part), Verdicts(atom.test))
        given[given] = verdicts.on(values.low[given], lambda number: spell(names, number))
        return given

    @property
    def packets(self) -> tuple[int, ...]:
        """The numbers of packets whose exchanges are selected: a run has to note the places of these packets."""
        return tuple(packet for atom in self._atoms for packet in packets_of(atom))

    def forget(self) -> None:
        """Forget all verdicts, because the numbers of names have changed."""
        self._names, self._verdicts = None, {}

    def bit(self, atom: FieldAtom) -> np.uint64:
        return self._bits[atom]


@dataclass(frozen=True)
class _View:
    """The columns of one batch, for atoms."""

    condition: Condition
    batch: Batch
    names: Names

    @cached_property
    def owner(self) -> Array:
        """The index in the batch of each result's exchange: int64 (rows,)."""
        return rows_of(self.batch.exchanges["exchange"], self.batch.results["exchange"])

    def of_exchanges(self, atom: Atom) -> Array:
        """bool (n,)."""
        exchanges = self.batch.exchanges
        if isinstance(atom, FieldAtom):
            marks = self.batch.marks
            assert marks is not None, "the engine ran without the condition's probes"
            found: Array = (marks & self.condition.bit(atom)) != 0
            return found
        assert isinstance(atom, ColumnAtom), "records are judged one by one"
        if atom.name.per == EXCHANGE:
            return self.condition.on_rows(atom, exchanges, self.names)
        results, owner = self.batch.results, self.owner
        if atom.name.per == ERRORS:
            return self._of_errors(atom)
        found = np.zeros(len(exchanges), bool)
        found[owner[self.condition.on_rows(atom, results, self.names)]] = True
        requested = self.batch.topics
        if atom.name.in_requests and requested is not None and len(requested):
            at = rows_of(exchanges["exchange"], requested["exchange"])
            passed = self.condition.on_rows(atom, requested, self.names) & (at >= 0)
            found[at[passed]] = True
        return found

    def of_results(self, atom: Atom) -> Array:
        """bool (rows,): by the result's own name, or else as for its exchange."""
        rows, condition = self.batch.results, self.condition
        found: Array = self.of_exchanges(atom)[self.owner]
        if isinstance(atom, FieldAtom):
            named = (rows["kind"] == KIND_GROUP) & (rows["name"] >= 0)
            if named.any() and isinstance(atom.test, MatchedTexts) and condition.names_group(atom):
                verdicts = Verdicts(atom.test)
                found[named] = verdicts.on(rows["name"][named], lambda number: string_text(self.names, number))
        elif isinstance(atom, ColumnAtom) and atom.name.name in _OWN_NAMES:
            parts = [values for reading, _ in atom.name.parts for values in reading(rows, self.names)]
            named = np.logical_or.reduce([np.ones(len(rows), bool) if v.null is None else ~v.null for v in parts])
            found[named] = condition.on_rows(atom, rows, self.names)[named]
        return found

    def _of_errors(self, atom: ColumnAtom) -> Array:
        """Test the non-zero codes of each exchange, or 0 if it has none."""
        failed = np.flatnonzero(self.batch.results["error_code"] != 0)
        owner = self.owner[failed]
        without = np.ones(len(self.batch.exchanges), bool)
        without[owner] = False
        none = np.zeros(1, self.batch.results.dtype)
        found: Array = without & self.condition.on_rows(atom, none, self.names)[0]
        distinct, inverse = np.unique(self.batch.results["error_code"][failed], return_inverse=True)
        codes = np.zeros(len(distinct), self.batch.results.dtype)
        codes["error_code"] = distinct
        found[owner[self.condition.on_rows(atom, codes, self.names)[inverse]]] = True
        return found


def _judged(node: Node, atom: Callable[[Atom], Array], count: int) -> Array:
    """The value of a node for `count` rows, from the values of its atoms."""
    if isinstance(node, (ColumnAtom, FieldAtom, RecordAtom)):
        return atom(node)
    if isinstance(node, Not):
        return ~_judged(node.item, atom, count)
    found = np.full(count, isinstance(node, Every))
    for item in node.items:
        if isinstance(node, Every):
            if not found.any():
                break
            found &= _judged(item, atom, count)
        else:
            found |= _judged(item, atom, count)
    return found


def _possible(node: Node, keys: Array, with_definitions: bool) -> tuple[Array, Array]:
    """For each API: whether a node can be true for one of its exchanges, and whether it can be false.
    `with_definitions`: APIs of others may have records."""
    if isinstance(node, Not):
        holds, fails = _possible(node.item, keys, with_definitions)
        return fails, holds
    if isinstance(node, (Every, Either)):
        pairs = [_possible(item, keys, with_definitions) for item in node.items]
        all_of, any_of = np.logical_and.reduce, np.logical_or.reduce
        first, second = (all_of, any_of) if isinstance(node, Every) else (any_of, all_of)
        return first([p[0] for p in pairs]), second([p[1] for p in pairs])
    open_ = np.ones(len(keys), bool)
    if isinstance(node, FieldAtom):
        return is_among(keys, sorted({key for key, _, _ in node.places})), open_
    if isinstance(node, RecordAtom):
        carrying = open_ if with_definitions else is_among(keys, sorted({key for key, _ in CARRY_RECORDS}))
        return carrying, carrying
    if node.name.apis is not None:
        return is_among(keys, sorted(node.name.apis)), open_
    if node.name.name != "api":
        return open_, open_
    if isinstance(node.test, MatchedTexts):
        verdict = node.test.on([api_name(key) for key in keys.tolist()])
    elif isinstance(node.test, Numbers):
        verdict = node.test.on(Values(keys, keys))
    else:
        verdict = open_
    return verdict, ~verdict


def packets_of(atom: Atom) -> tuple[int, ...]:
    """The packets that `packet == N` names; () for another atom."""
    if not isinstance(atom, ColumnAtom) or atom.name.name != "packet":
        return ()
    test = atom.test
    if not isinstance(test, Numbers) or test.op != "==":
        return ()
    return tuple(int(n) for n in test.values if isinstance(n, (int, float)) and n == int(n))


def _probe(atom: FieldAtom) -> Probe:
    test = atom.test
    if isinstance(test, (Numbers, Floats)):
        return Probe(atom.places, numbers=lambda values, kind: test.on(Values(values, values)))
    if isinstance(test, Present):
        return Probe(atom.places)

    def texts(values: Sequence[bytes], kind: str) -> Array:
        is_id = kind == "uuid"
        return test.on([uuid_text(value) or "" if is_id else value.decode("utf-8", "replace") for value in values])

    return Probe(atom.places, texts=texts)
