"""`--no-secrets`: passwords, proofs and tokens are nowhere in the copy, and its exchanges are those of the original."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkatap.engine.read_options import AS_USUAL, ReadOptions
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.extract import Summary
from kafkatap.extract.anonymized import extract_without_secrets
from kafkatap.extract.row_check import compare_rows
from kafkatap.reassembly import pcapng_blocks as blocks
from tests.cli.running import kafkatap as run
from tests.cli.tls_captures import make_tls_captures
from tests.extract.support import SAMPLES, assert_same_rows, extracted
from tests.support.captures import Packet, pcap_bytes
from tests.support.records import Record, batch
from tests.support.tcp import Segment, encode, frame, retransmit, split_small
from tests.wire.kafkatalk import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE, KafkaTalk

PASSWORD = b"Zq7&Wv:Jx9_Kf3"
#: A proof, a salt, a salted password, an HMAC, the value of a configuration, and a bearer token.
SECRETS = (PASSWORD, b"9fVpQ0xK3uJw", b"Gh5!Ry8?Lm2", b"Bn4+Tz6~Hc1", b"Dk0^Ws9|Px7", b"Fj8{Mq3}Vt5", b"Xb2.Yg6.Nd4")
CREATE_TOPICS, CREATE_TOKEN, RENEW, EXPIRE, DESCRIBE_TOKENS, ALTER_CONFIGS, ALTER_SCRAM = 19, 38, 39, 40, 41, 33, 51


def _talk(handshake: int = 1) -> list[Segment]:
    """A connection with all kinds of secrets. `handshake` 0: tokens are bare."""
    talk = KafkaTalk()
    talk.tcp.open()
    for token, answer in (
        (b"\0alice\0" + PASSWORD, b""),
        (b"c=biws,r=abc,p=" + SECRETS[1], b"v=" + SECRETS[1]),
        (b"n,,\x01auth=Bearer " + SECRETS[6] + b"\x01\x01", b""),
        (b"\x60\x82" + PASSWORD, b"\x60\x82" + SECRETS[1]),
    ):
        talk.respond(talk.request(SASL_HANDSHAKE, handshake, 1, Mechanism="PLAIN"))
        if handshake:
            talk.respond(talk.request(SASL_AUTHENTICATE, 1, 2, AuthBytes=token), AuthBytes=answer)
        else:
            talk.tcp.client(frame(token))
            talk.tcp.server(frame(answer))
    talk.respond(talk.request(METADATA, 4, 3, Topics=[{"Name": "orders"}]))
    config = {"Name": "ssl.truststore.password", "Value": SECRETS[5].decode()}
    resource = {"ResourceType": 4, "ResourceName": "1", "Configs": [config, {"Name": "a.b", "Value": "stays-here"}]}
    talk.respond(talk.request(ALTER_CONFIGS, 1, 4, Resources=[resource]))
    topic = {"Name": "bills", "NumPartitions": 1, "ReplicationFactor": 1, "Configs": [config]}
    talk.respond(talk.request(CREATE_TOPICS, 4, 5, Topics=[topic]))
    user = {"Name": "alice", "Mechanism": 1, "Iterations": 4096, "Salt": SECRETS[2], "SaltedPassword": SECRETS[3]}
    talk.respond(talk.request(ALTER_SCRAM, 0, 6, Upsertions=[user]))
    talk.respond(talk.request(CREATE_TOKEN, 1, 7), Hmac=SECRETS[4])
    talk.respond(talk.request(RENEW, 1, 8, Hmac=SECRETS[4]))
    talk.respond(talk.request(EXPIRE, 1, 9, Hmac=SECRETS[4]))
    talk.respond(talk.request(DESCRIBE_TOKENS, 1, 10), Tokens=[{"TokenId": "t", "Hmac": SECRETS[4]}])
    talk.tcp.close()
    return talk.tcp.segments


def _blanked(packets: Sequence[Packet], folder: Path) -> tuple[Path, Path, Summary]:
    capture, output = folder / "in.pcap", folder / "out.pcapng"
    capture.write_bytes(pcap_bytes(packets))
    made, done = extract_without_secrets([str(capture)], str(output))
    assert done is not None
    return capture, output, made


def _assert_nothing_left(output: Path, least: int = 6) -> None:
    """No part of a secret of so many bytes."""
    whole = output.read_bytes()
    pieces = {secret[at : at + least] for secret in SECRETS for at in range(len(secret) - least + 1)}
    assert {piece for piece in pieces if piece in whole} == set()


@pytest.mark.parametrize("handshake", [0, 1])
@pytest.mark.parametrize("size", [3, 11, 1448])
def test_exchanges_are_equal_and_secrets_gone(tmp_path: Path, handshake: int, size: int) -> None:
    """Secrets are split over segments, and some of these are sent again."""
    segments = split_small(_talk(handshake), size)
    for number in [n for n, each in enumerate(segments) if each.payload][:200:7]:
        segments = retransmit(segments, number, 2)
    capture, output, made = _blanked(encode(segments), tmp_path)
    assert all(secret in b"".join(each.payload for each in _talk(handshake)) for secret in SECRETS)
    _assert_nothing_left(output)
    assert made.different == 0
    rows = assert_same_rows(capture, output)
    assert len(rows) > 10
    whole = output.read_bytes()
    assert size < 100 or (b"stays-here" in whole and b"orders" in whole and b"\0alice\0xxxx" in whole)


@pytest.mark.parametrize("snap_length", range(75, 131, 5))
def test_captures_that_cut_secrets(tmp_path: Path, snap_length: int) -> None:
    capture, output, made = _blanked(encode(_talk(), snap_length=snap_length), tmp_path)
    _assert_nothing_left(output, 4)
    assert made.different == 0
    assert_same_rows(capture, output)


def test_other_packets_stay_as_they_are(tmp_path: Path) -> None:
    """Only packets with a secret change."""
    packets = encode(_talk())
    _, output, _ = _blanked(packets, tmp_path)
    whole = output.read_bytes()
    changed = [packet for packet in packets if packet.data not in whole]
    assert 0 < len(changed) <= 16
    assert all(any(secret in packet.data for secret in SECRETS) for packet in changed)


def test_comments_and_tls_secrets_of_the_capture_are_not_copied(tmp_path: Path) -> None:
    capture, output = tmp_path / "in.pcapng", tmp_path / "out.pcapng"
    file = [blocks.section_header("x", PASSWORD.decode()), blocks.interface_description(1, 0, ((9, b"\x09"),))]
    file.append(blocks.decryption_secrets(b"CLIENT_RANDOM " + PASSWORD))
    for packet in encode(_talk()):
        high, low = divmod(packet.time_ns, 1 << 32)
        file.append(blocks.packet(0, high, low, packet.data, packet.wire_length, [(blocks.COMMENT, PASSWORD)]))
    capture.write_bytes(b"".join(file))
    done = run("extract", capture, "--no-secrets", "-o", output)
    assert done.code == 0, done.err
    _assert_nothing_left(output)
    assert b"kafkatap: request AlterConfigs" in output.read_bytes()


def test_tls_stays_and_is_read_with_the_same_keys(tmp_path: Path) -> None:
    tls, output = make_tls_captures(tmp_path), tmp_path / "out.pcapng"
    read = AS_USUAL._replace(key_log=KeyLog([str(tls.key_log)]))
    made, _ = extract_without_secrets([str(tls.capture)], str(output), read=read)
    assert (made.different, made.packets) == (0, len(tls.packets))
    whole = output.read_bytes()
    assert all(packet.data in whole for packet in tls.packets)
    assert b"CLIENT_" not in whole


def test_records_of_the_metadata_log_are_filler(tmp_path: Path) -> None:
    talk = KafkaTalk()
    talk.tcp.open()
    for number, topic in enumerate(("__cluster_metadata", "orders")):
        records = batch([Record(None, SECRETS[number] * 4)])
        partition = {"PartitionIndex": 0, "HighWatermark": 1, "Records": records}
        response = {"Responses": [{"Topic": topic, "Partitions": [partition]}]}
        talk.respond(talk.request(1, 11, number), **response)
    capture, output, made = _blanked(encode(talk.tcp.segments), tmp_path)
    assert made.different == 0
    assert SECRETS[0] not in output.read_bytes()
    assert SECRETS[1] in output.read_bytes()
    assert_same_rows(capture, output)
    assert '"crc_ok":false' not in run("records", "--json", output).out


def test_an_extract_says_what_secrets_it_holds(tmp_path: Path) -> None:
    capture, output = tmp_path / "in.pcap", tmp_path / "out.pcapng"
    capture.write_bytes(pcap_bytes(encode(_talk())))
    done = run("extract", capture, "-o", output)
    line = next(line for line in done.err.splitlines() if "--no-secrets" in line)
    assert f"{output} holds passwords, proofs or tokens (" in line
    assert "1 AlterConfigs" in line
    assert "SaslAuthenticate" in line
    for options in (("--no-secrets",), ("-f", "api == Metadata and client == nobody")):
        assert "holds" not in run("extract", capture, *options, "-o", output).err
    assert run("extract", capture, "--no-secrets", "--with-secrets", "-o", output).code == 2


def test_a_decrypted_connection_holds_none_that_can_be_read(tmp_path: Path) -> None:
    tls = make_tls_captures(tmp_path)
    read = ReadOptions(key_log=KeyLog([str(tls.key_log)]))
    assert not extracted(tls.capture, tmp_path / "x.pcapng", read=read).secret_messages
    assert extracted(tls.capture, tmp_path / "y.pcapng", read=read, secrets=True).secret_messages
    assert extracted(tls.plain, tmp_path / "z.pcapng").secret_messages


def test_a_sample_with_authentication(tmp_path: Path) -> None:
    capture, output = SAMPLES / "questions/auth.pcap.zst", tmp_path / "out.pcapng"
    made, _ = extract_without_secrets([str(capture)], str(output))
    assert made.index is not None
    assert made.different == 0
    assert not compare_rows(made.index, str(output), AS_USUAL).secrets
    assert_same_rows(capture, output)
