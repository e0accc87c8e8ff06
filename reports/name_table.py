"""`NameTable`: numbers for strings and addresses, and the names of topic ids: the `Names` of rows from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .hosts.host_table import HostTable


class NameTable:
    """Numbers for strings and addresses, and the names of topic ids, which grow. -1 is null."""

    def __init__(self, hosts: HostTable | None = None) -> None:
        self.strings: list[bytes | None] = []
        self.addresses: list[str] = []
        self.topic_names: dict[int, int] = {}
        self.hosts = hosts
        self._strings: dict[bytes, int] = {}
        self._addresses: dict[str, int] = {}

    def string(self, value: bytes | None) -> int:
        """The number of a string, -1 for null."""
        if value is None:
            return -1
        number = self._strings.setdefault(value, len(self.strings))
        if number == len(self.strings):
            self.strings.append(value)
        return number

    def address(self, value: str | None) -> int:
        """The number of an address, -1 for none."""
        if not value:
            return -1
        number = self._addresses.setdefault(value, len(self.addresses))
        if number == len(self.addresses):
            self.addresses.append(value)
        return number

    def name_topic(self, topic_id: bytes, name: bytes) -> None:
        """Set the name of a topic id. A later name replaces an earlier one."""
        self.topic_names[self.string(topic_id)] = self.string(name)
