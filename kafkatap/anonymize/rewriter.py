"""`CaptureRewriter`: learns a capture in a first pass; then it rewrites its packets."""

from __future__ import annotations

from functools import partial

from ..captures.capture_reader import CaptureReader
from ..engine.read_options import AS_USUAL, ReadOptions
from ..run import Watch, never
from .learning import Learner
from .names import Names
from .packets import Array, PacketRewriter, PayloadRewriter, single


class CaptureRewriter:
    """Rewrites the packets of the capture at `path` with the pseudonyms of a key; None: it only blanks secrets.

    `engine_options`: arguments of `Engine`, as for a report on the capture. Use it as a context manager: it has a
    temporary file with new bytes.
    """

    def __init__(self, path: str, key: bytes | None, read: ReadOptions = AS_USUAL, watch: Watch = never) -> None:
        self.learner = Learner(None if key is None else Names(key), read)
        self.names = self.learner.names
        self.learner.read(path, watch)
        packets = PayloadRewriter if key is None else PacketRewriter
        self._packets = packets(self.names.addresses, self.learner.streams)
        self.left_out = 0
        self._packets.scan = partial(self._collect_fragments, path)

    def __enter__(self) -> CaptureRewriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.learner.streams.release()

    def _collect_fragments(self, path: str) -> None:
        reader = CaptureReader(path)
        try:
            while reader.fill():
                for packet in reader.packets[reader.position : reader.count]:
                    self._packets.collect(*single(reader.buffer, packet))
                reader.position = reader.count
        finally:
            reader.close()

    def rewrite(self, packet: bytes, link_type: int, number: int) -> bytes | None:
        """A packet's captured bytes in as many bytes; None if it does not lead to TCP, and is left out.

        `number`: its number in the capture, from 1. Call it in the order of packets.
        """
        made = self._packets.rewrite(packet, link_type, number)
        self.left_out += made is None
        return made

    def rewrite_all(self, buffer: Array, packets: Array) -> tuple[Array, Array]:
        """The same for the packets of a block (PACKET): their new bytes, at the same places, and which of them are not
        left out (bool)."""
        new, are_kept = self._packets.rewrite_all(buffer, packets)
        self.left_out += int((~are_kept).sum())
        return new, are_kept
