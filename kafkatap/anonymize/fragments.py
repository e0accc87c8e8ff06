"""IP fragments: the new bytes of each, made of the whole datagram.

At the first one, a scan of the capture adds all of them. Once those of a datagram are complete, it is rewritten as a
whole, so that its TCP payload and checksum are right, and cut again as before. Fragments of datagrams that never become
complete stay filler.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Datagrams that wait for more fragments, at most; the oldest are given up.
_MOST_WAITING = 4_096


#: Of a datagram: its addresses, protocol and identifier.
FragmentKey = tuple[bytes, bytes, int, int]


@dataclass(frozen=True, slots=True)
class Fragment:
    """The payload of one fragment."""

    key: FragmentKey
    number: int
    offset: int
    is_last: bool
    payload: bytes


class Fragments:
    """The fragments of a capture. `is_collecting`: during the scan. `new`: by packet number, the new payload."""

    def __init__(self) -> None:
        self.is_collecting = False
        self.new: dict[int, bytes] = {}
        self._waiting: dict[FragmentKey, list[Fragment]] = {}

    def add(self, fragment: Fragment) -> list[Fragment] | None:
        """Add a fragment; return all of its datagram, in order, if they are complete."""
        found = self._waiting.setdefault(fragment.key, [])
        if any(other.offset == fragment.offset for other in found):
            return None
        found.append(fragment)
        found.sort(key=lambda other: other.offset)
        end = 0
        for other in found:
            if other.offset != end:
                break
            end += len(other.payload)
        else:
            if found[-1].is_last:
                return self._waiting.pop(fragment.key)
        if len(self._waiting) > _MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        return None

    def keep(self, datagram: list[Fragment], payload: bytes) -> None:
        """Keep the new payload of a datagram, as it is cut."""
        for fragment in datagram:
            self.new[fragment.number] = payload[fragment.offset : fragment.offset + len(fragment.payload)]
