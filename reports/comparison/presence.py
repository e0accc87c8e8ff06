"""What only one side has: brokers, clients, APIs, topics, versions of a client's requests, software of TLS clients.

How sure: Fisher's exact test of the blocks of time in which it was seen. A client that was seen once in an hour is also
missing from most other hours.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from ..batch import Array
from .leaves import Forms, Key, Leaves
from .statistics import exact_p

#: Software that sends the same ClientHellos. It is compared if both sides have TLS.
TLS_SOFTWARE = "TLS software"
#: What can appear, the most important first, with its form and the parts of its key.
ENTITIES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("broker", "exchanges", ("broker",)), ("client", "exchanges", ("client",)), ("topic", "topics", ("topic",)),
    ("API", "exchanges", ("api",)), ("version", "versions", ("client", "api", "version")),
    ("error code", "errors", ("code",)), (TLS_SOFTWARE, "hellos", ("ja4",)),
)  # fmt: skip


class Presence(NamedTuple):
    """`what`: as in ENTITIES. `appeared`: only in B; otherwise only in A. `blocks`: in which it was seen, of `of`
    blocks of that side; `others`: the blocks of the other side. `exchanges`: with it; of TLS software its connections.
    `share`: of that side's requests, or connections with a ClientHello. `asked`, `refused`:
    the requests and refused connections on the side where a broker does not answer."""

    what: str
    key: Key
    appeared: bool
    exchanges: int
    share: float
    blocks: int
    of: int
    others: int
    p: float
    asked: int = 0
    refused: int = 0
    q: float = 1.0


def find_presence(forms: Forms, hidden: Collection[str] = ()) -> list[Presence]:
    """All that only one side has, without the `hidden` ENTITIES. What comes with it is not named: the topics
    of a client that appeared."""
    found: list[Presence] = []
    named: dict[str, set[object]] = {"broker": set(), "client": set(), "api": set()}
    for what, form, parts in ENTITIES:
        if what in hidden:
            continue
        leaves = forms[form]
        if not len(leaves):
            continue
        name = next(iter(forms.sides[0].counts.forms[form].form.values))
        a, b = leaves.value("answered" if what == "broker" else name)
        whole = a.sum(), b.sum()
        if what == TLS_SOFTWARE and not all(whole):
            continue
        groups: dict[Key, list[int]] = {}
        for number, key in enumerate(leaves.keys):
            if not any(getattr(key, part) in values for part, values in named.items()):
                groups.setdefault(Key(**{part: getattr(key, part) for part in parts}), []).append(number)
        on_both = _on_both(leaves, a, b) if what == "version" else None
        asked = leaves.value("requests") if what == "broker" else (a, b)
        refused = _refused(forms["connections"]) if what == "broker" else {}
        for key, members in groups.items():
            totals = a[:, members].sum(), b[:, members].sum()
            if (totals[0] > 0) == (totals[1] > 0) or (on_both is not None and (key.client, key.api) not in on_both):
                continue
            one = _presence(what, key, (a[:, members], b[:, members]), totals, whole)
            if what == "error code":
                one = one._replace(key=_common([leaves.keys[n] for n in members]))
            if what == "broker":
                other = 0 if one.appeared else 1  # what clients tried where it does not answer
                tried = refused.get(key.broker, (0, 0))[other]
                one = one._replace(asked=int(asked[other][:, members].sum()), refused=tried)
            found.append(one)
        for one in found:
            part = what.lower()
            if one.what == what and part in named and getattr(one.key, part) is not None:
                named[part].add(getattr(one.key, part))
    return found + ([] if "error code" in hidden else _codes_of_apis(forms["errors"], found))


def _codes_of_apis(errors: Leaves, found: list[Presence]) -> list[Presence]:
    """Error codes that both sides have, in APIs where only one side has them."""
    if not len(errors):
        return []
    a, b = errors.value(next(iter(errors.sides[0].counts.forms[errors.form].form.values)))
    whole = a.sum(), b.sum()
    known = {one.key.code for one in found if one.what == "error code"}
    groups: dict[tuple[int | None, int | None], list[int]] = {}
    for number, key in enumerate(errors.keys):
        if key.code not in known:
            groups.setdefault((key.api, key.code), []).append(number)
    made = []
    for members in groups.values():
        totals = a[:, members].sum(), b[:, members].sum()
        if (totals[0] > 0) != (totals[1] > 0):
            key = _common([errors.keys[n] for n in members])
            made.append(_presence("error code", key, (a[:, members], b[:, members]), totals, whole))
    return made


def _common(keys: list[Key]) -> Key:
    """What keys have in common."""
    return Key(*(values[0] if len(set(values)) == 1 else None for values in zip(*keys, strict=True)))


def _refused(connections: Leaves) -> dict[str | None, tuple[int, int]]:
    """The refused connections to each broker, on both sides."""
    a, b = (side.sum(axis=0).astype(np.int64).tolist() for side in connections.value("refused"))
    found: dict[str | None, tuple[int, int]] = {}
    for key, *more in zip(connections.keys, a, b, strict=True):
        before = found.get(key.broker, (0, 0))
        found[key.broker] = before[0] + more[0], before[1] + more[1]
    return found


def _on_both(leaves: Leaves, a: Array, b: Array) -> set[tuple[str | None, int | None]]:
    """The clients and APIs of which both sides have requests, in whatever version."""
    sides = [
        {(leaves.keys[n].client, leaves.keys[n].api) for n in np.flatnonzero(side.sum(axis=0) > 0).tolist()}
        for side in (a, b)
    ]
    return sides[0] & sides[1]


def _presence(
    what: str, key: Key, counts: tuple[Array, Array], totals: tuple[float, float], whole: tuple[float, float]
) -> Presence:
    appeared = totals[1] > 0
    seen = [int((side.sum(axis=1) > 0).sum()) for side in counts]
    of = [len(side) for side in counts]
    p = exact_p(seen[0], of[0], seen[1], of[1])
    own = 1 if appeared else 0
    share = float(totals[own] / max(whole[own], 1))
    return Presence(what, key, appeared, int(totals[own]), share, seen[own], of[own], of[1 - own], p)
