"""Upgrade: which clients a newer release of Kafka refuses, whose limit that is, and what helps.

A release refuses versions of APIs that it or an earlier one removed (`dissector.kafka.releases`; KIP-896 removed many
in 4.0). For each removed version that a client uses, the section compares the version with the newest one that the
broker offers in its ApiVersions responses:

- The version is below that of the broker. It is the client's limit, and the client breaks.
- They are the same. It is the broker's limit: the client may speak newer versions to a newer broker. Then the software
  decides (KIP-511): the Java client has the versions of its release. Of other software nobody can tell.
- What the broker offers was not captured. A client that asks for no versions, although the start of a connection was
  captured, does not negotiate them: it breaks. Of others the software decides, as before.

The cluster's own brokers (`own_brokers`) are no clients that break: they are upgraded with the cluster. Rows of their
own name them, with removed versions that mean ZooKeeper mode.

A client that uses no removed version is `ok` as far as it was seen. The columns on connections and requests say how
much that is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from kafkatap.dissector.dtypes import ORPHAN_RESPONSE
from kafkatap.dissector.kafka.releases import release_number, release_of, removed_in, speaks, stable_versions
from kafkatap.kernels.arrays import distinct_values

from ..connection_words import P_KAFKA
from ..counting.count_forms import ADDRESS, NUMBER, TEXT
from ..counting.rollup import api_label
from ..model import Column, ReportTable, Row, as_number, in_columns
from ..section_parts.counted import BROKER, CONNECTIONS, Counted, counted, largest, total
from ..section_parts.section import Section, SectionInput
from .clients import Who, by_api, software_seen, software_text, texts_of, with_software
from .own_brokers import BROKER_APIS, own_by

COLUMNS = (
    Column("client_id", "client", "text", "client_id of the requests"),
    Column("verdict", "verdict", "text", "breaks, ok, or cannot tell, at the release; broker: the cluster's own"),
    Column("evidence", "evidence", "text", "removed versions in use, and whose limit they are"),
    Column("fix", "fix", "text", "what helps", 1),
    Column("address", "address", "text", "IP address of the client", end="client"),
    Column("software", "software", "text", "name and version of the client software (KIP-511)", 1),
    Column("removed", "removed", "versions", "API versions in use that this release does not have any more", 9),
    Column("deprecated", "deprecated", "versions", "API versions in use that are deprecated or go later", 3),
    Column("api_versions", "API versions", "versions", "all API versions in use", 9),
    Column("requests", "requests", "count", "requests in these versions"),
    Column("apis", "APIs", "count", "different APIs of these requests", 2),
    Column("connections", "conns", "count", "TCP connections whose last client_id this is", 2),
    Column("started", "from\nstart", "count", "of these connections, those whose start was captured", 2),
)

BREAKS, CANNOT_TELL, FINE, OF_CLUSTER = "breaks", "cannot tell", "ok", "broker"
DEFAULT_RELEASE = "4.0"
#: The oldest clients that Kafka 4.0 and later support (KIP-896).
_OLDEST_CLIENT = "2.1"
#: Versions that are deprecated, and which no release has removed yet (KIP-896).
_DEPRECATED = frozenset(((11, 0), (11, 1)))
_JAVA = "apache-kafka-java"
#: Columns of EXCHANGE with other names than those of CONNECTION_ROW.
_COLUMN_OF = {"software": "client_software", "software_version": "client_software_version"}
_API_VERSIONS = 18
#: What a client sends before it does anything: SaslHandshake, ApiVersions, SaslAuthenticate.
_FIRST_APIS = {17, _API_VERSIONS, 36}
_MORE = "capture more of it"
_WHO_KINDS = {"client_id": TEXT, "client_ip": ADDRESS, "software": TEXT, "software_version": TEXT}
#: The newest version by API that brokers offer.
_OFFERED = counted(
    "upgrade.offered", BROKER | {"api_key": NUMBER}, of=("version range",),
    answers=total(1), max_version=largest("max_version"),
)  # fmt: skip
#: The versions that clients use.
_USED = counted(
    "upgrade.used", {**_WHO_KINDS, **BROKER, "api_key": NUMBER, "api_version": NUMBER},
    lambda x: (x.outcome != ORPHAN_RESPONSE) & (x.api_version >= 0), more=_COLUMN_OF, requests=total(1),
)  # fmt: skip
_REPLICAS = counted(
    "upgrade.replicas", _WHO_KINDS, lambda x: np.maximum(x.replica_id, x.replica_state_id) >= 0, of=("fetch",),
    more=_COLUMN_OF, fetches=total(1),
)  # fmt: skip
#: `started`: those whose start was captured.
_CONNECTIONS = counted(
    "upgrade.connections", _WHO_KINDS, lambda x: x.protocol == P_KAFKA, of=CONNECTIONS,
    connections=total(1), started=total(lambda x: x.handshake_rtt_ns >= 0),
)  # fmt: skip
COUNTS = (_USED, _OFFERED, _REPLICAS, _CONNECTIONS)


class _Seen:
    """What was seen of a client. `brokers`: by (api_key, version), the brokers that it was sent to."""

    def __init__(self) -> None:
        self.brokers: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
        self.requests = self.connections = self.started = 0
        self.replicates = False

    @property
    def negotiates(self) -> bool:
        """Whether it asks brokers for their versions, or may have before the capture began."""
        return any(key == _API_VERSIONS for key, _ in self.brokers) or self.started < self.connections


class _Verdict(NamedTuple):
    """`limit`: whose limit a removed version is, as text. `newest`: a newer version that the text ends with."""

    verdict: str
    api_key: int
    version: int
    limit: str
    newest: int | None = None


class _Judge:
    """Judges versions of APIs by the release in question and what brokers offer, (broker, api_key): version."""

    def __init__(self, release: str, offered: Mapping[tuple[tuple[int, int], int], int]) -> None:
        self.release = release
        self._offered = offered

    def is_removed(self, api_key: int, version: int) -> bool:
        gone = removed_in(api_key, version)
        return gone is not None and release_number(gone) <= release_number(self.release)

    def is_newer(self, api_key: int, version: int) -> bool:
        """Whether a version came after the release."""
        is_known = version in stable_versions(api_key) and not self.is_removed(api_key, version)
        return is_known and not speaks(self.release, api_key, version)

    def is_deprecated(self, api_key: int, version: int) -> bool:
        if (api_key, version) in _DEPRECATED:
            return True
        return removed_in(api_key, version) is not None and not self.is_removed(api_key, version)

    def has_api(self, api_key: int) -> bool:
        """Whether the release has any version of the API."""
        return any(speaks(self.release, api_key, version) for version in stable_versions(api_key))

    def finding(self, seen: _Seen, who: Who, api_key: int, version: int) -> _Verdict:
        """What a removed version in use means."""
        if not self.has_api(api_key):
            return _Verdict(BREAKS, api_key, version, "the whole API is gone")
        tops = [self._offered.get((broker, api_key)) for broker in seen.brokers[api_key, version]]
        top = max((t for t in tops if t is not None), default=None)
        newest = self._newest_of(who, api_key)
        if newest is not None:
            name = software_text(who)
            if top is not None and top > version:
                return _Verdict(CANNOT_TELL, api_key, version, f"the client's choice, {name} has up to", newest)
            whose = "" if top is None else "the broker's limit, "
            return _Verdict(FINE, api_key, version, f"{whose}{name} has up to", newest)
        if top is not None and top != version:
            return _Verdict(BREAKS, api_key, version, "the client's limit, the broker offers up to", top)
        if not seen.negotiates:
            return _Verdict(BREAKS, api_key, version, "the client asks brokers for no versions")
        limit = "what the broker offers was not captured" if top is None else "the broker's limit"
        return _Verdict(CANNOT_TELL, api_key, version, limit)

    def _newest_of(self, who: Who, api_key: int) -> int | None:
        """The newest version that both the software and the release have, if the software is known."""
        release = java_release(who)
        if release is None:
            return None
        return max(
            (v for v in stable_versions(api_key) if speaks(release, api_key, v) and speaks(self.release, api_key, v)),
            default=None,
        )


def java_release(who: Who) -> str | None:
    """The release of Kafka that a Java client is of."""
    if who[2] != _JAVA or who[3] is None:
        return None
    try:
        return release_of(who[3].partition("-")[0])
    except KeyError:
        return None


def _clients(given: SectionInput) -> dict[Who, _Seen]:
    """What was seen of each client."""
    known = software_seen([who for who, _ in _people(given, _USED)])
    clients: dict[Who, _Seen] = defaultdict(_Seen)
    for who, row in _people(given, _USED):
        if row["api_version"] >= 0:
            seen = clients[with_software(who, known)]
            seen.requests += row["requests"]
            seen.brokers[row["api_key"], row["api_version"]].add((row["broker_ip"], row["broker_port"]))
    for form in (_REPLICAS, _CONNECTIONS):
        for who, row in _people(given, form):
            found = clients.get(with_software(who, known))
            if found is not None:
                found.replicates |= form is _REPLICAS
                found.connections += row.get("connections", 0)
                found.started += row.get("started", 0)
    return clients


def _people(given: SectionInput, form: Counted) -> Iterator[tuple[Who, dict[str, int]]]:
    """The rows of a form, with the client of each."""
    keys = given.keys(form.name)
    names = texts_of([keys[name].tolist() for name in _WHO_KINDS], given.context)
    return zip(names, given.rows(form.name), strict=True)


def _own(clients: Mapping[Who, _Seen], given: SectionInput) -> dict[Who, str]:
    """The clients that are the cluster's own brokers, and what shows it."""
    keys, addresses = given.keys(_USED.name), given.context.addresses
    brokers = {addresses[n] for n in distinct_values(keys["broker_ip"]).tolist() if n >= 0}
    found = {}
    for who, seen in clients.items():
        why = own_by(who[0], who[1], {key for key, _ in seen.brokers}, seen.replicates, brokers)
        if why:
            found[who] = why
    return found


def _of_broker(judge: _Judge, why: str, seen: _Seen) -> tuple[str, str, str | None]:
    """The verdict on a broker's own client, its evidence, and what helps."""
    gone = sorted({api for api, version in seen.brokers if judge.is_removed(api, version) and not judge.has_api(api)})
    if not gone:
        return OF_CLUSTER, why, None
    names = ", ".join(map(api_label, gone))
    return OF_CLUSTER, f"{why}; {names}: ZooKeeper mode, removed in 4.0", "migrate the cluster to KRaft first"


def _offered(given: SectionInput) -> dict[tuple[tuple[int, int], int], int]:
    return {
        ((row["broker_ip"], row["broker_port"]), row["api_key"]): row["max_version"]
        for row in given.rows(_OFFERED.name)
    }  # fmt: skip


def _verdict(judge: _Judge, who: Who, seen: _Seen) -> tuple[str, str, str | None]:
    """The verdict on a client, its evidence, and what helps."""
    used = sorted(pair for pair in seen.brokers if pair[0] not in BROKER_APIS)
    findings = [judge.finding(seen, who, *pair) for pair in used if judge.is_removed(*pair)]
    apis = {key for key, _ in used}
    for verdict in (BREAKS, CANNOT_TELL):
        if mine := [finding for finding in findings if finding.verdict == verdict]:
            return verdict, _evidence(mine), _fix(verdict)
    if findings:
        return FINE, _evidence(findings), None
    if apis <= _FIRST_APIS and java_release(who) is None:
        return CANNOT_TELL, f"only {' and '.join(api_label(key) for key in sorted(apis))} of it was captured", _MORE
    newer: dict[int, list[int]] = defaultdict(list)
    for api_key, version in used:
        if judge.is_newer(api_key, version):
            newer[api_key].append(version)
    if newer:
        names = ", ".join(f"{api_label(key)} {_ranges(found)}" for key, found in newer.items())
        if seen.negotiates:
            return FINE, f"{names} is newer than {judge.release}: the client asks brokers for older versions", None
        return BREAKS, f"{names} is newer than {judge.release}, and the client asks brokers for no versions", None
    return FINE, f"every version is in {judge.release}", None


def _evidence(findings: list[_Verdict]) -> str:
    """`Produce v2, Fetch v2-3 (removed in 4.0): ...`, the same limits together."""
    by_limit: dict[str, list[_Verdict]] = defaultdict(list)
    for finding in findings:
        by_limit[finding.limit].append(finding)
    parts = []
    for limit, mine in by_limit.items():
        versions: dict[int, list[int]] = defaultdict(list)
        for finding in mine:
            versions[finding.api_key].append(finding.version)
        names = ", ".join(f"{api_label(key)} {_ranges(found)}" for key, found in versions.items())
        gone = {removed_in(f.api_key, f.version) or "" for f in mine}
        newest = {f.api_key: f"v{f.newest}" for f in mine if f.newest is not None}
        limit += " " + ", ".join(newest.values()) if newest else ""
        parts.append(f"{names} (removed in {', '.join(sorted(gone))}): {limit}")
    return "; ".join(parts)


def _ranges(versions: list[int]) -> str:
    """`v2`, `v0-2`, `v0,v3`."""
    runs: list[list[int]] = []
    for version in sorted(versions):
        if runs and runs[-1][-1] == version - 1:
            runs[-1].append(version)
        else:
            runs.append([version])
    return ",".join(f"v{run[0]}" if len(run) == 1 else f"v{run[0]}-{run[-1]}" for run in runs)


def _fix(verdict: str) -> str:
    if verdict == BREAKS:
        return f"use a release of the client's library that speaks Kafka {_OLDEST_CLIENT} or newer"
    return f"look up the client's library, or check again at brokers of {_OLDEST_CLIENT} or newer"


def tables(given: SectionInput) -> tuple[ReportTable, ...]:
    """Rows by verdict, then by requests."""
    release = given.options.get("release", DEFAULT_RELEASE)
    judge = _Judge(release, _offered(given))
    rows: list[Row] = []
    clients = _clients(given)
    own = _own(clients, given)
    for who, seen in clients.items():
        verdict, evidence, fix = _verdict(judge, who, seen)
        if who in own:
            verdict, evidence, fix = _of_broker(judge, own[who], seen)
        used = set(seen.brokers)
        removed = {pair for pair in used if judge.is_removed(*pair)}
        deprecated = {pair for pair in used if judge.is_deprecated(*pair)}
        rows.append({
            "client_id": who[0], "address": who[1], "software": software_text(who), "verdict": verdict,
            "evidence": evidence, "fix": fix, "removed": by_api(removed), "deprecated": by_api(deprecated),
            "api_versions": by_api(used), "requests": seen.requests, "apis": len({key for key, _ in used}),
            "connections": seen.connections, "started": seen.started,
        })  # fmt: skip

    def order(row: Row) -> tuple[Any, ...]:
        who = str((row["client_id"], row["address"], row["software"]))
        return (BREAKS, CANNOT_TELL, FINE, OF_CLUSTER).index(str(row["verdict"])), -as_number(row["requests"]), who

    made = in_columns(COLUMNS, rows, order)
    notes = ["A client is judged by the versions that it used in the capture, not by those that it could use."]
    if own:
        notes.append("broker: one of the cluster's own clients, which is upgraded with the cluster.")
    elif any("broker's limit" in str(row["evidence"]) for row in rows):
        notes.append("broker's limit: the newest version that the broker offers; a newer broker may get a newer one.")
    return (ReportTable("upgrade", f"Upgrade to Kafka {release}", COLUMNS, made, tuple(notes), empty="no requests"),)


def breaking_clients(table: ReportTable) -> int:
    """The number of clients in the section's table that break."""
    return sum(row["verdict"] == BREAKS for row in table.named_rows())


SECTION = Section(
    "upgrade", "Who breaks at Kafka 4.0 (or the release of --release)?",
    columns={"upgrade": COLUMNS}, tables=tables, counts=COUNTS,
)  # fmt: skip
