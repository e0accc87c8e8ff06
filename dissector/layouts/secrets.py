"""The fields that hold secrets. All code that shows values decides by this module.

A field is identified by its API, direction and path of names ("Upsertions.Salt"). A configuration's value is secret
by the name of the configuration, or by the broker's mark; without the mark it is secret too. The metrics that clients
push are treated as secrets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .schema import REQUEST, RESPONSE

#: (api_key, direction, path) of fields that are always secret.
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
    """The field `value` of a configuration is secret by its `name` or by `flag`, the broker's mark. The mark covers the
    values of the elements of `inner`, too."""

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

#: APIs whose bytes without a layout are not shown: those above, and those that carry such messages.
CAREFUL_APIS = frozenset(api_key for api_key, _, _ in (*SECRET_FIELDS, *GUARDS)) | {17, 58}

_VERSION = re.compile(r"V\d+(?=\.|$)")
_SECRET_NAME = re.compile(
    r"passw|passphrase|pwd|secret|key|jaas|token|credential|certificate|private|auth\.|sasl\.oauth|assertion",
    re.IGNORECASE,
)


def is_secret_field(api_key: int, direction: int, path: str) -> bool:
    """Whether a field is always secret. `path`: names from the body, with dots.

    If the definitions of two Kafkas differ, a field may have the version of the older layout in its name (`overlay`).
    """
    return (api_key, direction, _VERSION.sub("", path)) in SECRET_FIELDS


def guard_of(api_key: int, direction: int, path: str) -> Guard | None:
    """The guard of a struct, or None. `path`: names from the body, with dots."""
    return GUARDS.get((api_key, direction, _VERSION.sub("", path)))


def is_guarded_field(api_key: int, direction: int, path: str) -> bool:
    """Whether a guard decides if a field is secret."""
    struct, _, name = _VERSION.sub("", path).rpartition(".")
    guard = guard_of(api_key, direction, struct)
    return guard is not None and guard.value == name


def may_be_secret(api_key: int, direction: int, path: str) -> bool:
    """Whether a field may be secret, so that it is neither compared nor printed unless the user names it."""
    return is_secret_field(api_key, direction, path) or is_guarded_field(api_key, direction, path)


def is_secret_name(name: str | None) -> bool:
    """Whether a configuration with this name may be secret ("ssl.keystore.password"). One without a name may be."""
    return name is None or _SECRET_NAME.search(name) is not None
