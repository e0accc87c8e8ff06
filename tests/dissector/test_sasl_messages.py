"""The kinds of SASL messages, found by their form: each mechanism's own, and nothing on other bytes."""

from __future__ import annotations

import random

import pytest

from kafkatap.dissector.facts.sasl_messages import EMPTY, MESSAGES, OTHER, mechanism_of, message_kind

CLIENT = {
    b"": "empty",
    b"\0alice\0alice-secret": "PLAIN credentials",
    b"admin\0alice\0alice-secret": "PLAIN credentials",
    b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL": "SCRAM client-first",
    b"n,,n=alice,r=fyko,tokenauth=true": "SCRAM client-first",
    b"p=tls-unique,,n=alice,r=fyko": "SCRAM client-first",
    b"y,a=admin,n=alice,r=fyko": "SCRAM client-first",
    b"c=biws,r=fyko3rfc,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=": "SCRAM client-final",
    b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0.e30.\x01\x01": "OAUTHBEARER client-first",
    b"n,a=alice,\x01auth=Bearer e30\x01\x01": "OAUTHBEARER client-first",
    b"\x01": "OAUTHBEARER client-end",
    bytes.fromhex("6082021006092a864886f7120102020100") + bytes(300): "GSSAPI initial token (AP-REQ)",
    bytes.fromhex("603706092a864886f7120102020201") + bytes(40): "GSSAPI security layer chosen",
    bytes.fromhex("050400ff000c000000000000") + bytes(30): "GSSAPI security layer chosen",
    bytes.fromhex("603706062b0601050502a0") + bytes(40): "SPNEGO token",
    bytes.fromhex("600d06052b05010503") + bytes(8): "GSSAPI token",
    b'{"version":"2020_10_22","host":"b","action":"kafka-cluster:Connect","x-amz-credential":"AKIA"}': (
        "AWS_MSK_IAM credentials"
    ),
    b"hello": "other",
    b"n,,x=1": "other",
}
BROKER = {
    b"": "empty",
    b"r=fyko3rfc,s=QSXCR+Q6sek8bf92,i=4096": "SCRAM server-first",
    b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=": "SCRAM server-final",
    b"e=invalid-proof": "SCRAM server-error",
    b'{"status":"invalid_token"}': "OAUTHBEARER error",
    b'{"version":"2020_10_22","request-id":"e1"}': "AWS_MSK_IAM answer",
    bytes.fromhex("606c06092a864886f7120102020200") + bytes(90): "GSSAPI answer (AP-REP)",
    bytes.fromhex("606c06092a864886f7120102020300") + bytes(90): "GSSAPI error (KRB-ERROR)",
    bytes.fromhex("050401ff000c000000000000") + bytes(20): "GSSAPI security layers offered",
    b"\0alice\0not-for-a-broker": "other",
}


@pytest.mark.parametrize("is_answer", [False, True])
def test_each_message_has_its_kind(is_answer: bool) -> None:
    for token, kind in (BROKER if is_answer else CLIENT).items():
        assert MESSAGES[message_kind(token, is_answer)] == kind, token


def test_a_name_says_the_mechanism() -> None:
    assert {mechanism_of(kind) for kind in range(len(MESSAGES))} == {
        "", "PLAIN", "SCRAM", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM",
    }  # fmt: skip
    assert mechanism_of(EMPTY) == mechanism_of(OTHER) == ""


def test_any_bytes_have_a_kind() -> None:
    chance = random.Random(3)
    tokens = [*CLIENT, *BROKER]
    for _ in range(20_000):
        token = bytearray(chance.choice(tokens))
        for _ in range(chance.randrange(4)):
            if token:
                token[chance.randrange(len(token))] = chance.randrange(256)
        cut = bytes(token[: chance.randrange(len(token) + 1)])
        for is_answer in (False, True):
            assert 0 <= message_kind(cut, is_answer) < len(MESSAGES)
