"""Which fields are secret: every field of bytes is judged, and every value of a configuration."""

from __future__ import annotations

import pytest

from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE
from kafkatap.dissector.layouts.secrets import (
    GUARDS,
    SECRET_FIELDS,
    is_guarded_field,
    is_secret_field,
    is_secret_name,
    may_be_secret,
)
from kafkatap.dissector.programs.fields import K_VALUE, number_fields
from kafkatap.dissector.tree.sasl import describe_token
from tests.dissector.machine_support import MESSAGES

FIELDS = [info for info in number_fields(MESSAGES) if info.kind == K_VALUE]
#: Fields of bytes that are no secrets: what groups and brokers tell each other, with what lies in them judged again.
OPEN_BYTES = {
    (11, REQUEST, "Protocols.Metadata"), (11, RESPONSE, "Members.Metadata"),
    (14, REQUEST, "Assignments.Assignment"), (14, RESPONSE, "Assignment"),
    (15, RESPONSE, "Groups.Members.MemberMetadata"), (15, RESPONSE, "Groups.Members.MemberAssignment"),
    (58, REQUEST, "RequestData"), (58, REQUEST, "RequestPrincipal"), (58, REQUEST, "ClientHostAddress"),
    (58, RESPONSE, "ResponseData"),
}  # fmt: skip


def test_every_field_of_bytes_is_judged() -> None:
    found = {(info.api_key, info.direction, info.path) for info in FIELDS if info.type == "bytes"}
    assert found == OPEN_BYTES | SECRET_FIELDS


def test_every_value_of_a_configuration_is_guarded() -> None:
    values = {
        (info.api_key, info.direction, info.path)
        for info in FIELDS
        if info.type == "string" and info.inner[-1] == "Value" and "onfig" in info.path
    }
    guarded = {(key, direction, f"{path}.{guard.value}") for (key, direction, path), guard in GUARDS.items()}
    assert guarded == values
    assert all(may_be_secret(*place) and is_guarded_field(*place) and not is_secret_field(*place) for place in guarded)


def test_fields_that_definitions_renamed_are_secret_as_before() -> None:
    assert is_secret_field(51, REQUEST, "UpsertionsV0.SaltedPasswordV0")
    assert is_guarded_field(44, REQUEST, "ResourcesV0.Configs.Value")
    assert not is_secret_field(1, REQUEST, "TopicsV0.Hmac")


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("ssl.key.password", True), ("sasl.jaas.config", True), ("listener.name.x.plain.sasl.jaas.config", True),
        ("delegation.token.secret.key", True), ("ssl.keystore.certificate.chain", True), (None, True),
        ("basic.auth.credentials", True), ("retention.ms", False), ("cleanup.policy", False),
        ("compression.type", False),
    ],
)  # fmt: skip
def test_names_of_configurations(name: str | None, secret: bool) -> None:
    assert is_secret_name(name) == secret


@pytest.mark.parametrize(
    ("token", "direction", "mechanism", "text"),
    [
        (b"\0user\0hush", REQUEST, None, "PLAIN: user name and password"),
        (b"", RESPONSE, "PLAIN", "PLAIN: accepted"),
        (b"n,,n=hush,r=hush", REQUEST, None, "SCRAM: the client's first message"),
        (b"r=hush,s=hush,i=4096", RESPONSE, "SCRAM-SHA-256", "SCRAM-SHA-256: the server's nonce, salt and iterations"),
        (b"c=biws,r=hush,p=hush", REQUEST, "SCRAM-SHA-512", "SCRAM-SHA-512: the client's proof"),
        (b"v=hush", RESPONSE, None, "SCRAM: the server's signature"),
        (b"e=hush", RESPONSE, None, "SCRAM: refused"),
        (b"n,a=u,\x01auth=Bearer hush\x01\x01", REQUEST, None, "OAUTHBEARER: a bearer token"),
        (b"\x60hush", REQUEST, "GSSAPI", "GSSAPI: a token"),
        (b"\x60hush", REQUEST, None, ""),
    ],
)
def test_tokens_are_told_but_not_shown(token: bytes, direction: int, mechanism: str | None, text: str) -> None:
    assert describe_token(token, direction, mechanism) == text
