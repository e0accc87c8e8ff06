"""Pseudonyms of names: one consistent map for all strings and uuids, whatever field they are in.

A name is mapped word by word. The words are its longest runs of letters and digits; separators stay. So a client id has
the same pseudonym in a header and within a member id, and a topic the same within the name of its changelog. A word's
pseudonym has its length. A letter becomes a letter of the same case, a digit a digit, and different words become
different words. Words with other characters become letters. Addresses within names follow `addresses`, and uuids are
the same number as text, in base 64, and as 16 bytes.
"""

from __future__ import annotations

import base64
import re
from ipaddress import ip_address

import numpy as np

from .addresses import IPV4_TEXT, IPV6_TEXT, PUBLIC, Addresses
from .keyed import Permutations

#: Names that each cluster or host has. They stay.
PUBLIC_NAMES = frozenset(
    {
        b"__consumer_offsets", b"__transaction_state", b"__share_group_state", b"__cluster_metadata",
        b"__remote_log_metadata", b"localhost",
    }
)  # fmt: skip
_UUID_TEXT = re.compile(rb"(?<![0-9A-Za-z])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Za-z])")
_BASE64_UUID = re.compile(rb"(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z])[0-9A-Za-z_-]{21}[AQgw]")
WORD = re.compile(rb"[^-._:/@#,=*| +()\[\]{}^$\\;~?&%<>!\"']+")
_PLAIN_WORD = re.compile(rb"[0-9A-Za-z]+")
_PRINCIPALS = (b"User:", b"Group:")
KEPT_PRINCIPALS = frozenset({b"User:*", b"User:ANONYMOUS"})
#: Cached pseudonyms, at most.
_KEPT = 200_000
#: Strings that are kept for the audit: how many, from how many bytes on, and how much of each.
_MOST_FORGOTTEN, _SHORTEST, _LONGEST = 50_000, 6, 64
#: Reserved uuids: none, and the topic of the cluster's metadata.
_RESERVED = (bytes(16), bytes(15) + b"\1")
#: Longer words are mapped in parts of so many bytes: the time for a permutation grows with the square of its length.
_LONGEST_WORD, _PART = 256, 128
#: No name that Kafka accepts has more bytes: their length has 15 bits.
_LONGEST_NAME = 32_767
#: Bytes of a longer word that are replaced at once.
_AT_ONCE = 1 << 20
_CLASSES = ((0x30, 10), (0x41, 26), (0x61, 26))


class Names:
    """The pseudonyms under one key."""

    def __init__(self, key: bytes) -> None:
        self._permutations = Permutations(key)
        self.addresses = Addresses(self._permutations)
        self._words: dict[bytes, bytes] = {}
        self._known: dict[bytes, bytes] = {}
        self._uuids: dict[bytes, bytes] = {}
        #: Strings of the original that became filler, for the audit.
        self.forgotten: set[bytes] = set()
        #: Strings of the original that stayed by a rule: the audit does not search them.
        self.kept: set[bytes] = set()

    def name(self, name: bytes) -> bytes:
        """The pseudonym of a name, of the same length."""
        found = self._known.get(name)
        if found is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            found = self._known[name] = self._name(name)
        return found

    def text(self, name: str) -> str:
        """The pseudonym of a name that is a string (bytes that are not UTF-8 as surrogates)."""
        return self.name(name.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def uuid(self, raw: bytes) -> bytes:
        """The pseudonym of a uuid of 16 bytes."""
        if raw in _RESERVED:
            return raw
        found = self._uuids.get(raw)
        if found is None:
            if len(self._uuids) >= _KEPT:
                self._uuids.clear()
            made = self._permutations.of(b"uuid", 1 << 128, int.from_bytes(raw, "big"))
            found = self._uuids[raw] = made.to_bytes(16, "big")
        return found

    def forget(self, original: bytes) -> None:
        """Note that a string became filler."""
        if len(original) >= _SHORTEST and len(self.forgotten) < _MOST_FORGOTTEN:
            self.forgotten.add(original[:_LONGEST])

    def keep(self, original: bytes) -> bytes:
        """Note that a string stays; return it."""
        if len(self.kept) < _KEPT:
            self.kept.add(original)
        return original

    @property
    def all_names(self) -> dict[bytes, bytes]:
        """The names so far with their pseudonyms."""
        return self._known

    def _name(self, name: bytes) -> bytes:
        if name in PUBLIC_NAMES or name in KEPT_PRINCIPALS:
            return name
        for prefix in _PRINCIPALS:
            if name.startswith(prefix):
                return prefix + self._bare(name[len(prefix) :])
        return self._bare(name)

    def _bare(self, name: bytes) -> bytes:
        """A name without the kind of a principal."""
        if name in PUBLIC_NAMES:
            return name
        if len(name) >= _SHORTEST and not WORD.search(name):  # separators only
            return self._other(name)
        if _BASE64_UUID.fullmatch(name):
            raw = base64.urlsafe_b64decode(name + b"==")
            return base64.urlsafe_b64encode(self.uuid(raw)).rstrip(b"=")
        return self._pieces(name, 0)

    def _pieces(self, name: bytes, kind: int) -> bytes:
        """A name whose uuids (kind 0) and addresses (1: IPv6, 2: IPv4) are mapped first."""
        if kind == 3:
            return WORD.sub(lambda found: self._word(found[0]), name)
        pattern = (_UUID_TEXT, IPV6_TEXT, IPV4_TEXT)[kind]
        made, at = [], 0
        for found in pattern.finditer(name):
            mapped = (self._uuid_text, self.addresses.ipv6_text, self.addresses.ipv4_text)[kind](found[0])
            if mapped is not None and (mapped != found[0] or _is_public(mapped)):
                made += [self._pieces(name[at : found.start()], kind + 1), mapped]
                at = found.end()
        return b"".join((*made, self._pieces(name[at:], kind + 1)))

    def _uuid_text(self, text: bytes) -> bytes:
        raw = self.uuid(bytes.fromhex(text.replace(b"-", b"").decode())).hex().encode()
        if text != text.lower():
            raw = raw.upper()
        return b"-".join((raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:]))

    def _word(self, word: bytes) -> bytes:
        if len(word) > _LONGEST_NAME:
            return self._plain(word) if _PLAIN_WORD.fullmatch(word) else self._other(word)
        found = self._words.get(word)
        if found is None:
            if len(self._words) >= _KEPT:
                self._words.clear()
            found = self._words[word] = self._plain(word) if _PLAIN_WORD.fullmatch(word) else self._other(word)
        return found

    def _plain(self, word: bytes) -> bytes:
        """A word of letters and digits: a permutation of all words with letters and digits in the same places."""
        if len(word) <= _LONGEST_WORD:
            return self._permuted(b"word", word)
        if len(word) > _LONGEST_NAME:
            return self._replaced(word)
        parts, before = [], b""
        for at in range(0, len(word), _PART):  # each part's map depends on those before it, so this is a permutation
            part = word[at : at + _PART]
            parts.append(self._permuted(b"long" + before, part))
            before = self._permutations.stream(b"part" + before + part, 16)
        return b"".join(parts)

    def _permuted(self, context: bytes, word: bytes) -> bytes:
        classes = [_CLASSES[(byte > 0x40) + (byte > 0x60)] for byte in word]
        number, size = 0, 1
        for byte, (first, count) in zip(word, classes, strict=True):
            number, size = number * count + byte - first, size * count
        shape = b"".join(b"0Aa"[_CLASSES.index(kind) : _CLASSES.index(kind) + 1] for kind in classes)
        number = self._permutations.of(context + shape, size, number)
        made = bytearray()
        for first, count in reversed(classes):
            number, digit = divmod(number, count)
            made.append(first + digit)
        made.reverse()
        return bytes(made)

    def _replaced(self, word: bytes) -> bytes:
        """A word that is too long for a name: each letter and digit by one that the whole word determines."""
        seed, made = self._permutations.seed(word), bytearray()
        for at in range(0, len(word), _AT_ONCE):
            letters = np.frombuffer(word, np.uint8, min(_AT_ONCE, len(word) - at), at)
            first, count = np.array(_CLASSES, np.uint8)[(letters > 0x40).astype(np.uint8) + (letters > 0x60)].T
            context = b"replaced" + at.to_bytes(8, "big") + seed
            numbers = np.frombuffer(self._permutations.stream(context, len(letters)), np.uint8)
            made += (first + numbers % count).tobytes()
        return bytes(made)

    def _other(self, word: bytes) -> bytes:
        """A word with other characters, as letters: words of one or two bytes may become the same."""
        numbers = np.frombuffer(self._permutations.stream(b"other" + word, 2 * len(word)), ">u2")
        return (0x61 + numbers % 26).astype(np.uint8).tobytes()


def _is_public(text: bytes) -> bool:
    """Whether a text is an address that each host has."""
    try:
        return ip_address(text.decode()).packed in PUBLIC
    except ValueError:
        return False
