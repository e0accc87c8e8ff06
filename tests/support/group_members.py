"""Members of a classic group without a broker: what they and their coordinator send."""

from __future__ import annotations

import struct

from .tcp import START_NS, TcpConversation, request_frame, response_frame


def text(value: str) -> bytes:
    return struct.pack("!h", len(value)) + value.encode()


def assignment(*partitions: int) -> bytes:
    topics = struct.pack("!i", 1) + text("orders") + struct.pack(f"!i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack("!h", 0) + topics + struct.pack("!i", -1)


class GroupMember:
    """The connection to the coordinator of a member of a group that reads `orders`, from a time in seconds on."""

    def __init__(self, client: str, member: str, host: int, port: int, at: float, group: str = "billing") -> None:
        self.client_id, self.id, self.number, self.group = client, member, 0, group
        self.talk = TcpConversation(
            (f"10.0.0.{host}", port),
            ("10.0.1.1", 9092),
            time_ns=START_NS + round(at * 1_000_000_000),
            isn=(port, port * 7),
        )
        self.talk.open()

    def ask(self, api: int, version: int, request: bytes, response: bytes, wait_ns: int = 1_000_000) -> None:
        self.number += 1
        self.talk.client(request_frame(api, version, self.number, self.client_id, request))
        self.talk.wait(wait_ns)
        self.talk.server(response_frame(self.number, response))

    def ask_to_join(self, generation: int, error: int = 0, wait_ns: int = 1_000_000, protocol: str = "range") -> None:
        """JoinGroup. `wait_ns`: for the others."""
        asked = text(self.group) + struct.pack("!ii", 10_000, 60_000) + text(self.id) + text("consumer")
        answer = struct.pack("!hi", error, generation) + text(protocol) + text("leader") + text(self.id)
        self.ask(11, 1, asked + struct.pack("!i", 0), answer + struct.pack("!i", 0), wait_ns)

    def join(
        self, generation: int, *partitions: int, wait_ns: int = 1_000_000, protocol: str = "range"
    ) -> None:  # fmt: skip
        """JoinGroup, and SyncGroup with an assignment. `wait_ns`: for the others, in JoinGroup."""
        self.ask_to_join(generation, 0, wait_ns, protocol)
        given = assignment(*partitions)
        asked = text(self.group) + struct.pack("!i", generation) + text(self.id) + struct.pack("!i", 0)
        self.ask(14, 0, asked, struct.pack("!hi", 0, len(given)) + given)

    def fetch_offset(self, partition: int, offset: int) -> None:
        place = struct.pack("!i", 1) + text("orders") + struct.pack("!ii", 1, partition)
        self.ask(9, 1, text(self.group) + place, place + struct.pack("!q", offset) + text("") + struct.pack("!h", 0))

    def beat(self, at: float) -> None:
        self.talk.time_ns = START_NS + round(at * 1_000_000_000)
        self.ask(12, 0, text(self.group) + struct.pack("!i", 1) + text(self.id), struct.pack("!h", 0))

    def refused(self, error: int, generation: int = 1) -> None:
        self.ask(12, 0, text(self.group) + struct.pack("!i", generation) + text(self.id), struct.pack("!h", error))

    def leave(self) -> None:
        self.ask(13, 0, text(self.group) + text(self.id), struct.pack("!h", 0))

    def commit(self, error: int) -> None:
        """OffsetCommit of a record of partition 1."""
        asked = text(self.group) + struct.pack("!i", 1) + text(self.id) + struct.pack("!q", -1) + struct.pack("!i", 1)
        place = text("orders") + struct.pack("!ii", 1, 1)
        self.ask(8, 2, asked + place + struct.pack("!q", 5) + text(""),
                 struct.pack("!i", 1) + place + struct.pack("!h", error))  # fmt: skip
