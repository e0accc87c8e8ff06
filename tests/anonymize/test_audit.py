"""The search for originals: it finds them, and nothing that only looks like one."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import kafkatap
from kafkatap.anonymize.audit import Originals, find_original, originals_of
from kafkatap.anonymize.fields import rewritten_string
from kafkatap.anonymize.names import Names
from kafkatap.anonymize.sasl_tokens import rewritten_token
from kafkatap.captures.capture_reader import CaptureReader
from kafkatap.extract.anonymized import extract_anonymized
from tests.support.captures import Packet, pcap_bytes
from tests.support.tcp import encode
from tests.wire.kafkatalk import small_talk

SMALL_MACS = bytes.fromhex("000000000002 000000000001")
PACKETS = [Packet(p.time_ns, SMALL_MACS + p.data[12:], p.wire_length) for p in encode(small_talk(4).segments)]


def _capture(folder: Path, packets: list[Packet]) -> str:
    path = folder / "in.pcap"
    path.write_bytes(pcap_bytes(packets))
    return str(path)


def test_mac_addresses_like_counters_do_not_make_it_fail(tmp_path: Path) -> None:
    output = tmp_path / "out.pcapng"
    made, done = extract_anonymized([_capture(tmp_path, PACKETS)], str(output))
    assert done is not None
    assert made.packets == len(PACKETS)
    reader = CaptureReader(str(output))
    reader.fill()
    macs = {reader.buffer[at : at + 12].tobytes() for at in reader.packets["at"][: reader.count].tolist()}
    reader.close()
    assert not any(mac in both for both in macs for mac in (SMALL_MACS[:6], SMALL_MACS[6:]))


@pytest.mark.parametrize("mac", [SMALL_MACS[:6], b"\x02\x42\xac\x11\x00\x02"])
def test_a_mac_address_that_is_left_is_found(mac: bytes, tmp_path: Path) -> None:
    names = Names(b"a key of 16 bytes")
    names.addresses.mac(mac)
    left = [Packet(p.time_ns, b"\2" * 6 + mac + p.data[12:], p.wire_length) for p in PACKETS[-2:]]
    assert find_original(_capture(tmp_path, left), originals_of(names)) == mac
    others = [Packet(p.time_ns, b"\2" * 12 + p.data[12:], p.wire_length) for p in PACKETS]
    assert find_original(_capture(tmp_path, others), originals_of(names)) is None


def test_originals_of_filler_only_are_not_searched() -> None:
    names = Names(b"a key of 16 bytes")
    assert names.name(b"xxxxxxxx") != b"xxxxxxxx"
    names.forget(b"x" * 40)
    names.forget(bytes(40))
    names.forget(b"xxxxxxxx-secret")
    originals = originals_of(names)
    assert len(originals) == 1
    assert originals.found_in(b"x" * 100 + bytes(100)) is None
    assert originals.found_in(b"x" * 100 + b"-secret") == b"xxxxxxxx-secret"


def test_an_original_that_is_the_pseudonym_of_another_is_not_searched() -> None:
    """All hosts of ten neighbouring networks: some become one another."""
    names = Names(b"a key of 16 bytes")
    for third in range(10):
        for host in range(256):
            names.text(f"/192.168.{third}.{host}")
    names.text("/10.77.0.1")
    originals = originals_of(names)
    assert originals.found_in(b"\n".join(names.all_names.values())) is None
    assert originals.found_in(b"at 10.77.0.1:9092") == b"10.77.0.1"


def test_what_stays_in_names_by_rule_is_not_searched() -> None:
    """Separators, and the principal that everybody has, also if they were filler elsewhere."""
    names = Names(b"a key of 16 bytes")
    for name in (b"------", b"a------", b"User:ANONYMOUS", b"User:alice-1"):
        names.name(name)
    names.forget(b"User:ANONYMOUS")
    names.forget(b"--------")
    originals = originals_of(names)
    assert originals.found_in(b"b-------- of User:ANONYMOUS") is None
    assert originals.found_in(b"of User:alice-1") == b"User:alice-1"


def test_short_names_within_longer_pseudonyms_are_not_searched() -> None:
    """The pseudonyms of words of fourteen digits contain some of ten thousand names of six digits."""
    names = Names(b"a key of 16 bytes")
    for number in range(10_000):
        names.text(f"{37 * number:06}")
    for number in range(1_000):
        names.text(f"batch-2024{number:010}")
    originals = originals_of(names)
    assert len(originals) > 9_000
    assert originals.found_in(b"\n".join(names.all_names.values())) is None


def test_a_secret_that_is_a_kept_value_is_not_searched() -> None:
    """The password is the size of a segment. It became filler, and the size stays."""
    names, rule = Names(b"a key of 16 bytes"), {"Name": "segment.bytes"}
    assert rewritten_token(names, b"\0alice-1\x00134217728") == b"\0%s\0xxxxxxxxx" % names.name(b"alice-1")
    assert rewritten_string(names, "Configs.Value", b"134217728", {"Name": "acme.bytes"}) != b"134217728"
    assert originals_of(names).found_in(b"134217728") == b"134217728"
    assert rewritten_string(names, "Configs.Value", b"134217728", rule) == b"134217728"
    assert originals_of(names).found_in(b"134217728") is None
    assert originals_of(names).found_in(b"alice-1") == b"alice-1"


@pytest.mark.parametrize("name", ["principal", "separators", "config-name", "versions", "two-messages"])
def test_recordings_that_need_not_be_refused(corpus: Path, tmp_path: Path, name: str) -> None:
    capture = corpus / "captures" / "repro" / f"anon-refused-{name}.pcap"
    made, done = extract_anonymized([str(capture)], str(tmp_path / "out.pcapng"))
    assert done is not None
    assert made.packets > 0


def test_a_correlation_id_stays_beside_printable_numbers(corpus: Path, tmp_path: Path) -> None:
    """Correlation id 100, throttle time and error code are a run of six printable bytes."""
    capture, output = corpus / "captures" / "repro" / "anon-correlation-id.pcap", tmp_path / "out.pcapng"
    extract_anonymized([str(capture)], str(output))
    (row,) = kafkatap.analyze(output).exchanges.to_pylist()
    assert (row["correlation_id"], row["outcome"], row["response_bytes"]) == (100, "answered", 10)


def test_all_strings_at_a_place_are_found_and_none_beyond_a_range() -> None:
    texts = [b"orders", b"orders-eu", b"orders-eu-2", b"orders-us", b"ers-eu-", b"Orders"]
    originals = Originals(texts)
    data = b"orders-eu-1 orders-uk.orders-us"
    places = [(at, text) for at in range(len(data)) for text in texts if data.startswith(text, at)]
    assert sorted(originals.all_in(data)) == sorted(text for _, text in places)
    for start, end in itertools.combinations(range(len(data) + 1), 2):
        inside = {text for at, text in places if start <= at and at + len(text) <= end}
        assert set(originals.all_in(data, np.array([0, 0, start, end]))) == inside
