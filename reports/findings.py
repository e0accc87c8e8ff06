"""`Finding`: a conclusion with its numbers. Sections, events, advice, `doctor` and `compare` make the same type.

A finding rests on evidence: numbers, times and packets. It is silent without. Its sentence is made last, from the
numbers. A finding that follows from another one is folded under it: it names that one as its `cause`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from .model import Scalar

#: An error makes requests fail or a report wrong. A warning costs time, or takes something from a report. A note
#: explains.
ERROR, WARNING, NOTE = "error", "warning", "note"
#: The worst first.
SEVERITIES = (ERROR, WARNING, NOTE)
#: Nobody notices what costs less time than this in all, ns.
NOTICED_NS = 1_000_000_000

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Party(NamedTuple):
    """Whom a finding is on. `kind`: client, broker, connection, group, topic, partition, producer or host. `name`:
    unescaped, as on the wire; of a broker `address:port`."""

    kind: str
    name: str


class Finding(NamedTuple):
    """One conclusion. A `Rule` makes it.

    `id`: stable, for programs, such as "broker_stopped" or "nagle". `label`: one or two words before the sentence.
    `text`: the sentence, unescaped; made from `numbers` and `parties`. `severity`: of SEVERITIES.

    `time_lost_ns`: of people: the summed time of exchanges that would not have passed without it; 0: unknown, or none.
    `begin`, `end`: ns since the epoch; `end` None: it lasts, or took no time. `numbers`: by name, with the unit as
    suffix (`_ns`, `_bytes`, `_share`, `_packets`); plain values. `packets`: numbers of packets that show it, the first
    one first. `parties`: the most important first.

    `setting`: the setting to change, such as "socket.nagle.disable". `remedy`: what to do, in a sentence.
    `options`, `command`: of the command that shows it, which is `kafkatap` with `command`
    (`commands.command`). "": there is none.
    `cause`: the key (`key`) of the finding that it follows from.
    `evidence`, `effect`: of findings about the captures themselves (`doctor`): the numbers behind it, and what it does
    to reports.
    """

    id: str
    severity: str
    label: str
    text: str
    time_lost_ns: int = 0
    begin: int | None = None
    end: int | None = None
    numbers: Mapping[str, Scalar] = _NOTHING
    packets: tuple[int, ...] = ()
    parties: tuple[Party, ...] = ()
    setting: str = ""
    remedy: str = ""
    options: tuple[tuple[str, str | None], ...] = ()
    command: str = "report"
    cause: tuple[Any, ...] | None = None
    evidence: str = ""
    effect: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """What identifies a finding within a report: its id, its first party, and when it began."""
        return (self.id, self.parties[0] if self.parties else None, self.begin)

    def party(self, kind: str) -> str | None:
        """The name of its first party of a kind."""
        return next((party.name for party in self.parties if party.kind == kind), None)


class Rule(NamedTuple):
    """What the findings of one kind have in common, as of `Finding`."""

    id: str
    label: str
    severity: str = WARNING
    command: str = "report"
    setting: str = ""
    remedy: str = ""

    def found(
        self, text: str, *parties: Party, begin: int | None, end: int | None = None, packets: Iterable[int] = (),
        lost: int = 0, see: Iterable[tuple[str, str | None]] = (), severity: str = "", **numbers: Scalar,
    ) -> Finding:  # fmt: skip
        """A finding. `packets`: 0 is none. `lost`: `time_lost_ns`. `see`: the options of the command. `severity`: if it
        is not the usual one."""
        shown_by = tuple(filter(None, packets))
        return Finding(
            self.id, severity or self.severity, self.label, text, lost, begin, end, numbers, shown_by, parties,
            self.setting, self.remedy, tuple(see), self.command,
        )  # fmt: skip
