"""Blanks the secrets of frames, and leaves all else as it is.

What is secret is decided by `dissector.layouts.secrets`: what a tree of the frame hides becomes filler. Of SASL tokens
the user name stays. The records of the cluster's metadata log hold salts and keys of SCRAM, so all of them become
filler. So do the bodies of messages without a layout, because a token may look like one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kafkatap.dissector.inspection import Frames
from kafkatap.dissector.layouts.catalog import api_name
from kafkatap.dissector.layouts.overlay import Definitions
from kafkatap.dissector.layouts.schema import REQUEST, RESPONSE
from kafkatap.dissector.layouts.secrets import CAREFUL_APIS
from kafkatap.dissector.tree import node as n
from kafkatap.dissector.tree.view import EarlierFacts, Viewer

from ..selected_messages.envelopes import EnvelopeCollector
from .addresses import Addresses
from .fields import FILLER, PLAIN_VALUE
from .keyed import random_key
from .messages import FILLERS, CapturedFrame, MessageRewriter
from .names import Names

_FETCHES = (1, 59)
_METADATA_LOG, _METADATA_ID = b"__cluster_metadata", bytes(15) + b"\1"
#: Where a flexible Fetch response has its first topic id, and bytes within which a response names its first topic.
_ID_AT, _NAME_WITHIN = 20, 64
_BLANK = frozenset(b"".join(FILLERS))
#: Bytes of the name of an attribute of SCRAM ("p=").
_NAME = 2


class SameAddresses(Addresses):
    """Addresses that stay."""

    def packed(self, address: bytes) -> bytes:
        return address

    def mac(self, address: bytes) -> bytes:
        return address

    def ipv4_text(self, text: bytes) -> bytes | None:
        return text

    def ipv6_text(self, text: bytes) -> bytes | None:
        return text


class SameNames(Names):
    """Names that stay. `forgotten` has the secrets."""

    def __init__(self) -> None:
        super().__init__(random_key())
        self.addresses = SameAddresses(self._permutations)

    def name(self, name: bytes) -> bytes:
        return name

    def uuid(self, raw: bytes) -> bytes:
        return raw


class SecretBlanker(MessageRewriter):
    """Blanks frames. `viewers`: make a tree with secrets, and one that hides them."""

    def __init__(self, viewers: Callable[[], Viewer] = Viewer) -> None:
        self.secret_names = SameNames()
        super().__init__(self.secret_names, viewers())
        self._hiding = viewers()
        self._hiding.numbers, self._hiding.records = False, self._viewer.records

    def string(self, names: Names, field: str, value: bytes, siblings: Mapping[str, object]) -> bytes:
        return value

    def rewrite_all(self, frames: Sequence[CapturedFrame]) -> list[bytes | bytearray]:
        """Each frame in as many bytes."""
        return [self.blanked(frame) for frame in frames]

    def blanked(self, frame: CapturedFrame) -> bytes | bytearray:
        """A frame without its secrets."""
        if frame.is_token:
            return self.rewrite_token(frame.frame)
        api_key, version = frame.api_key, frame.version
        if frame.direction == REQUEST:
            api_key, version = (int.from_bytes(frame.frame[at : at + 2], "big", signed=True) for at in (4, 6))
        is_known = self._viewer.plan(api_key, frame.direction, version) is not None
        if is_known and api_key not in CAREFUL_APIS and not _is_of_metadata_log(frame, api_key):
            return bytes(frame.frame)
        return self._without_hidden(frame, bytearray(self._rewritten(frame)))

    def _without_hidden(self, frame: CapturedFrame, made: bytearray) -> bytearray:
        """The bytes of a frame with filler in place of what a tree of the original hides."""
        earlier = EarlierFacts(frame.mechanism, frame.enveloped)
        tree = self._hiding.view(frame.frame, frame.direction, frame.api_key, frame.version, earlier)
        for _, node in n.walk(tree):
            # A token has a rule of its own, by which it is rewritten already.
            if node.kind == n.HIDDEN and isinstance(node.value, int) and node.name != "AuthBytes":
                start = node.end - node.value
                secret = bytes(frame.frame[start : node.end])
                if not PLAIN_VALUE.fullmatch(secret):
                    self.names.forget(secret)
                made[start : node.end] = FILLER * len(made[start : node.end])
        return made


def _is_of_metadata_log(frame: CapturedFrame, api_key: int) -> bool:
    """Whether a response brings records of the cluster's metadata."""
    if frame.direction != RESPONSE or api_key not in _FETCHES:
        return False
    head = bytes(frame.frame[:_NAME_WITHIN])
    return _METADATA_LOG in head or head[_ID_AT : _ID_AT + 16] == _METADATA_ID


class SecretCounter:
    """An inspector that counts the messages with secrets, by API. `is_encrypted`: whether a connection is, so that its
    secrets cannot be read."""

    def __init__(self, is_encrypted: Callable[[int], bool], definitions: Definitions | None = None) -> None:
        self.found: Counter[str] = Counter()
        self._is_encrypted = is_encrypted
        self._blanker = SecretBlanker()
        self._envelopes = EnvelopeCollector(definitions)

    def look(self, frames: Frames) -> None:
        """See the frames of a drain."""
        self._envelopes.look(frames)
        jobs = frames.jobs
        slots = jobs["frame"] >> 1
        careful = np.isin(frames.rows["api_key"][slots], list(CAREFUL_APIS)) | (frames.links["token"][slots] > 0)
        for job, slot in zip(jobs[careful], slots[careful].tolist(), strict=True):
            row, link, side = frames.rows[slot], frames.links[slot], int(job["frame"]) & 1
            if self._is_encrypted(int(link["connection"])):
                continue
            size = int(row[("request_bytes", "response_bytes")[side]]) + 4
            raw = frames.bytes_of(job)
            enveloped = self._envelopes.inner.get(int(row["exchange"])) if side else None
            api_key, version = int(row["api_key"]), int(row["api_version"])
            frame = CapturedFrame(raw, side, api_key, version, None, enveloped, bool(link["token"]))
            replaced = {old for old, new in zip(raw, self._blanker.blanked(frame), strict=True) if old != new}
            # A frame that was cut may be blanked by other fillers, and with the name of its token's last attribute.
            if len(replaced - _BLANK) > (_NAME if len(raw) < size else 0):
                self.found["SASL token" if frame.is_token else api_name(api_key)] += 1
