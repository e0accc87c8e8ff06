"""Which fields of which messages hold secrets: the one place that says so, for everything that shows values.

A field is named by its API, direction and path of names ("Upsertions.Salt"). What a configuration's value holds is told
by the configuration's name beside it, or by the broker's own mark; where that mark was not read the value is secret.
Payload that nobody should meet by chance (the metrics that clients push) is treated alike.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .schema import REQUEST, RESPONSE

#: (api_key, direction, path) of fields that are secret whatever they hold.
SECRET_FIELDS = frozenset(
    (
        (36, REQUEST, "AuthBytes"),
        (36, RESPONSE, "AuthBytes"),
        (38, RESPONSE, "Hmac"),
        (39, REQUEST, "Hmac"),
        (40, REQUEST, "Hmac"),
        (41, RESPONSE, "Tokens.Hmac"),
        (51, REQUEST, "Upsertions.Salt"),
        (51, REQUEST, "Upsertions.SaltedPassword"),
        (72, REQUEST, "Metrics"),
    )
)


@dataclass(frozen=True, slots=True)
class Guard:
    """Values that are secret because of what stands beside them: the `value` of a configuration by its `name`; `flag`
    is the broker's mark. With `inner`, what the mark covers as well: the values of these elements."""

    value: str
    name: str = "Name"
    flag: str = ""
    inner: str = ""


#: By (api_key, direction, path of the struct).
GUARDS = {
    (19, REQUEST, "Topics.Configs"): Guard("Value"),
    (19, RESPONSE, "Topics.Configs"): Guard("Value", flag="IsSensitive"),
    (32, RESPONSE, "Results.Configs"): Guard("Value", flag="IsSensitive", inner="Synonyms"),
    (32, RESPONSE, "Results.Configs.Synonyms"): Guard("Value"),
    (33, REQUEST, "Resources.Configs"): Guard("Value"),
    (44, REQUEST, "Resources.Configs"): Guard("Value"),
    **{
        (key, direction, f"{path}.{topics}.TopicConfigs"): Guard("Value", name="Key")
        for key, direction, path in (
            (88, REQUEST, "Topology.Subtopologies"),
            (89, RESPONSE, "Groups.Topology.Subtopologies"),
        )
        for topics in ("RepartitionSourceTopics", "StateChangelogTopics")
    },
}

#: APIs of whose bytes none are shown that the layouts do not explain: those above, and those that carry such messages.
CAREFUL_APIS = frozenset(api_key for api_key, _, _ in (*SECRET_FIELDS, *GUARDS)) | {17, 58}

_VERSION = re.compile(r"V\d+(?=\.|$)")
_SECRET_NAME = re.compile(
    r"passw|passphrase|pwd|secret|key|jaas|token|credential|certificate|private|auth\.|sasl\.oauth|assertion",
    re.IGNORECASE,
)


def is_secret_field(api_key: int, direction: int, path: str) -> bool:
    """Whether a field is secret whatever it holds. `path`: names from the body, dotted.

    Where definitions of two Kafkas differ, a field may carry the version of the older layout in its name (`overlay`).
    """
    return (api_key, direction, _VERSION.sub("", path)) in SECRET_FIELDS


def guard_of(api_key: int, direction: int, path: str) -> Guard | None:
    """The guard of a struct, if it has one. `path`: names from the body, dotted."""
    return GUARDS.get((api_key, direction, _VERSION.sub("", path)))


def is_guarded_field(api_key: int, direction: int, path: str) -> bool:
    """Whether a field may be secret, by what stands beside it."""
    struct, _, name = _VERSION.sub("", path).rpartition(".")
    guard = guard_of(api_key, direction, struct)
    return guard is not None and guard.value == name


def may_be_secret(api_key: int, direction: int, path: str) -> bool:
    """Whether a field is not to be compared with, printed, or otherwise told without being asked for by name."""
    return is_secret_field(api_key, direction, path) or is_guarded_field(api_key, direction, path)


def is_secret_name(name: str | None) -> bool:
    """Whether a configuration of this name may hold a secret ("ssl.keystore.password"); so does one without a name."""
    return name is None or _SECRET_NAME.search(name) is not None
