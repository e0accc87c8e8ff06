"""Pseudonyms: as long as the originals, distinct, consistent in all their forms, and never the original."""

from __future__ import annotations

import base64
import itertools
import string
import uuid
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatap.anonymize import read_key
from kafkatap.anonymize.keyed import Permutations
from kafkatap.anonymize.names import Names

KEY = b"0123456789abcdef"
NAMES = Names(KEY)
_NAMES = st.text(string.ascii_letters + string.digits + "._-:/ äß主\x00", max_size=60)


@pytest.mark.parametrize("size", [2, 3, 10, 26, 1_024, 1_025, 5_000])
def test_permutations_of_small_ranges_are_permutations_without_fixed_points(size: int) -> None:
    permutations = Permutations(KEY)
    mapped = [permutations.of(b"context", size, value) for value in range(size)]
    assert sorted(mapped) == list(range(size))
    assert all(old != new for old, new in enumerate(mapped))


@given(st.integers(2, 1 << 200).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1))))
def test_permutations_of_large_ranges_stay_in_them(case: tuple[int, int]) -> None:
    size, value = case
    mapped = Permutations(KEY).of(b"", size, value)
    assert 0 <= mapped < size
    assert mapped != value


@given(_NAMES)
def test_a_name_keeps_its_length_and_its_separators(name: str) -> None:
    old = name.encode()
    new = NAMES.name(old)
    assert len(new) == len(old)
    new.decode()
    assert new == Names(KEY).name(old)
    for a, b in zip(old, new, strict=True):
        if chr(a) in "._-:/ " or chr(b) in "._-:/ ":
            assert a == b


def test_different_words_have_different_pseudonyms() -> None:
    words = [f"{letter}{number}".encode() for letter in string.ascii_letters for number in range(100)]
    assert len({NAMES.name(word) for word in words}) == len(words)


def test_words_have_their_pseudonyms_within_longer_names() -> None:
    topic, member = NAMES.text("orders"), NAMES.text("billing-orders-1-550e8400-e29b-41d4-a716-446655440000")
    assert member.split("-")[:2] == [NAMES.text("billing"), topic]
    assert NAMES.text("orders-changelog").startswith(topic + "-")


def test_a_uuid_is_the_same_number_in_all_its_forms() -> None:
    raw = uuid.UUID("550e8400-e29b-41d4-a716-446655440a1b")
    new = NAMES.uuid(raw.bytes)
    assert uuid.UUID(NAMES.text(str(raw))).bytes == new != raw.bytes
    text = base64.urlsafe_b64encode(raw.bytes).decode().rstrip("=")
    assert base64.urlsafe_b64decode(NAMES.text(text) + "==") == new
    assert NAMES.uuid(bytes(16)) == bytes(16)


@given(st.ip_addresses())
def test_an_address_keeps_the_length_of_its_text(address: object) -> None:
    old = ip_address(str(address))
    new = ip_address(NAMES.addresses.packed(old.packed))
    assert new.version == old.version
    for text in {str(old), old.exploded}:
        mapped = NAMES.text(text)
        assert len(mapped) == len(text)
        assert ip_address(mapped) == new


def test_addresses_keep_their_common_prefixes() -> None:
    first, second = (ip_address(NAMES.text(text)).packed for text in ("10.77.0.1", "10.77.0.2"))
    assert first[:3] == second[:3] != bytes((10, 77, 0))
    assert first[3] != second[3]
    assert NAMES.text("/10.77.0.1:9092").startswith(f"/{NAMES.text('10.77.0.1')}:")
    assert NAMES.text("127.0.0.1") == "127.0.0.1"


def test_different_addresses_have_different_pseudonyms() -> None:
    old = [bytes((10, 77, third, last)) for third in (0, 7, 99, 100, 255) for last in range(256)]
    assert len({NAMES.addresses.packed(address) for address in old}) == len(old)


def test_another_key_has_other_pseudonyms() -> None:
    other = Names(b"another key of more bytes")
    for name in ("orders", "10.77.0.1", "550e8400-e29b-41d4-a716-446655440000"):
        assert other.text(name) != NAMES.text(name)


def test_public_names_stay() -> None:
    assert NAMES.text("__consumer_offsets") == "__consumer_offsets"
    assert NAMES.text("User:ANONYMOUS") == "User:ANONYMOUS"
    assert NAMES.text("User:alice") == "User:" + NAMES.text("alice")


def test_a_short_key_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"short\n")
    with pytest.raises(ValueError, match="openssl rand"):
        read_key(path)
    path.write_bytes(KEY + b"\n")
    assert read_key(path) != KEY
    key = read_key(path)
    path.write_bytes(KEY)
    assert (read_key(path), len(key)) == (key, 32)
    path.write_bytes(KEY + b"1")
    assert read_key(path) != key


@pytest.mark.parametrize("name", [
    "0.44.123.99", "230.99.88.77", "0.10.20.30", "host-255.12.34.56", "1234::0001:0.0.0.9", "___---___", "240.1.2.3",
    "255.255.255.1", "fe80::1", "ff12::abcd", "64:ff9b::10.2.3.4", "::ffff:a02:304", "User:------", "User:User:bob",
])  # fmt: skip
def test_names_that_look_special_are_mapped_too(name: str) -> None:
    new = NAMES.text(name)
    assert (len(new), new != name) == (len(name), True)


@pytest.mark.parametrize("name", ["127.0.0.1", "/127.0.0.1", "::1", "0.0.0.0", "255.255.255.255", "*", "User:*"])
def test_addresses_of_each_host_stay(name: str) -> None:
    assert NAMES.text(name) == name


@pytest.mark.parametrize("private", [
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "169.254.0.0/16", "100.64.0.0/10", "224.0.0.0/4",
    "240.0.0.0/4", "fc00::/7", "fe80::/10",
])  # fmt: skip
def test_ranges_map_onto_themselves(private: str) -> None:
    network = ip_network(private)
    step = network.num_addresses // 199
    for number in range(3, network.num_addresses - 1, step):
        old = network[number]
        new = ip_address(NAMES.addresses.packed(old.packed))
        assert new in network
        assert new != old
    assert not any(ip_address(NAMES.addresses.packed(bytes((n, 9, 8, 7)))) in network for n in (8, 11, 99, 203))


def test_addresses_of_all_ranges_have_different_pseudonyms() -> None:
    firsts = (0, 1, 9, 10, 100, 126, 127, 128, 169, 172, 192, 198, 223, 224, 240, 254, 255)
    old = list(itertools.product(firsts, (0, 1, 15, 16, 31, 32, 99, 168, 254, 255), (0, 1, 99, 255), (0, 1, 2, 255)))
    assert len({NAMES.addresses.packed(bytes(address)) for address in old}) == len(old)


def test_principals_of_principals_end() -> None:
    name = "User:" * 6_000
    assert len(NAMES.text(name)) == len(name)


def test_long_words_have_different_pseudonyms() -> None:
    """They are mapped in parts, so that the time does not grow with the square of their length."""
    words = [b"aB1" * 10_000 + end for end in (b"", b"a", b"b", b"aB")] + [b"bB1" + b"aB1" * 9_999]
    mapped = [NAMES.name(word) for word in words]
    assert [len(word) for word in mapped] == [len(word) for word in words]
    assert len(set(mapped)) == len(words)
    assert mapped[0][200:] != mapped[4][200:30_000]
