"""Key logs: the secrets of TLS connections in the format of SSLKEYLOGFILE.

A key log may have millions of lines, of which a run needs a few. So it is scanned once for an index of 8 bytes a line
(`key_log_lines`), and lines are read when they are needed. Files may grow, be truncated, or be replaced: `poll` reads
what is new.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from itertools import islice
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from kafkatap.kernels.hashing import new_seed

from .key_log_lines import LONGEST, OFFSET_BITS, PROBLEMS, SHORTEST, USED, KeyLine, find_lines, hash_of, parse_line
from .key_log_sources import GrowingLines, HeldLines, LineBlocks, LineSocket, LineSource, WholeFile, is_plain, is_socket
from .secrets import LABELS, Secrets, TrafficSecret, Trials

Array = np.ndarray[Any, np.dtype[Any]]
T = TypeVar("T")

#: Files are scanned in blocks of this size.
_BLOCK = 4 << 20
#: Bytes in memory: of compressed files, and of decryption secrets blocks.
_HELD = 256 << 20
#: Files that were replaced and stay open. Extents of the index, after which everything is scanned anew.
_REPLACED, _EXTENTS = 16, 65_536
#: Lines of a client random that count, the latest ones. Secrets that are kept.
_SAME, _KEPT = 4_096, 4_096
#: Lines that are read at once.
_NEAR = 8
#: Traffic secrets to try, and how far back they are searched.
_TRAFFIC, _BACK = 4_096, 16 << 20
#: The latest connections of which something is kept: that their secrets are not tried for others, the sessions that
#: they may resume or did, hashes.
_LATEST = 65_536
#: New places wait up to a part of the sorted ones before both are sorted together.
_WAITING = 65_536
_TRAFFIC_NAMES = ("client_traffic", "server_traffic")
_OFFSET_MASK = (1 << OFFSET_BITS) - 1


class KeyLog:
    """The secrets of some key logs. OSError if a file cannot be opened.

    `is_growing`: files may come later and grow, and are read again with `poll`. `version` changes with new lines.
    `has_sessions`: it has secrets of session ids, which only the ServerHello shows.
    """

    def __init__(self, paths: Sequence[str] = (), is_growing: bool = False) -> None:
        self.paths = tuple(paths)
        self.is_growing = is_growing
        self.version = 0
        self.trials = Trials()
        self._added = HeldLines(_HELD)
        self._taken: dict[bytes, None] = {}
        #: By client random, the session id whose master secret a connection used.
        self._sessions: dict[bytes, bytes] = {}
        #: Client randoms: by session id or ticket, that of the connection that got it; by that of a resumed
        #: connection, that of the full handshake.
        self._issued: dict[bytes, bytes] = {}
        self._origins: dict[bytes, bytes] = {}
        #: By client random, the names of the session that a connection resumes, if no connection got it before.
        self._unknown: dict[bytes, tuple[bytes, ...]] = {}
        #: By client random, the name of the connection's ends (`name_of_ends`).
        self._ends: dict[bytes, bytes] = {}
        self._sockets: dict[str, LineSocket] = {}
        self._begin()

    def _begin(self) -> None:
        """Scan everything."""
        self.has_sessions = False
        self._seed = new_seed()
        self._hashes: dict[bytes, int] = {}
        self._counts = np.zeros(3, np.int64)
        self._sorted = self._waiting = np.zeros(0, np.int64)
        self._new: list[Array] = []
        self._end = 0
        #: Where scanned bytes are: their first offset in the index, their source, their offset there.
        self._extents: list[tuple[int, LineSource, int]] = []
        self._kept: dict[bytes, Secrets | None] = {}
        self._traffic: list[TrafficSecret] | None = None
        self._files: dict[str, GrowingLines] = {}
        self._replaced: list[GrowingLines] = []
        self._wholes: dict[str, tuple[int, ...]] = {}
        self._notes: dict[str, str] = {}
        for path in self.paths:
            with suppress(FileNotFoundError) if self.is_growing else nullcontext():
                self._open(path)
        for offset, block in self._added:
            self._scan(self._added, bytearray(block), 0, len(block), offset)
        self._sort()

    def __repr__(self) -> str:
        return f"KeyLog({list(self.paths)})"

    def __getstate__(self) -> dict[str, Any]:
        """The paths, and what is in memory. Files are read again."""
        added = b"".join(block for _, block in self._added)
        return {"paths": self.paths, "is_growing": self.is_growing, "added": added}

    def __setstate__(self, state: dict[str, Any]) -> None:
        paths = tuple(path for path in state["paths"] if "://" in path or os.path.exists(path))
        self.__init__(paths)  # type: ignore[misc]
        self.is_growing = state["is_growing"]
        if state["added"]:
            self.add(state["added"])

    # ---------------------------------------------------------------- what is in it

    def secrets(self, client_random: bytes) -> Secrets | None:
        """The secrets of a client random, or else those of the connection's ends. A resumed connection of TLS 1.2 has
        the master secret of the full handshake."""
        if client_random in self._kept:
            return self._kept[client_random]
        found: Secrets | None = None
        for line in self._lines_of(client_random):
            if line.name:
                found = found or Secrets(client_random)
                setattr(found, line.name, line.secret)
        origin = None if found is not None else self._origins.get(client_random)
        if origin is not None:
            known = self.secrets(origin)
            if known is not None and known.master:
                found = Secrets(client_random)
                found.master = known.master
        if found is None and client_random in self._ends:
            found = self.secrets(self._ends[client_random])
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        self._kept[client_random] = found
        return found

    def master_of_session(self, session: bytes, client_random: bytes) -> bytes:
        """The master secret of a session id of TLS 1.2, or nothing. `client_random`: of the connection."""
        found = [line.secret for line in self._lines_of(session) if not line.name] if session else []
        if not found:
            return b""
        _put(self._sessions, client_random, session)
        return found[-1]

    def have_lines(self, connections: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """Whether there may be lines for connections: of their client random, of that of the full handshake that they
        resume, or of their session id (the second one; or nothing). Costs little for many."""
        owners: list[bytes] = []
        places: list[int] = []
        for place, (random, session) in enumerate(connections):
            others = self._origins.get(random, b""), self._ends.get(random, b"")
            mine = [random, *others, session if self.has_sessions else b""]
            owners += filter(None, mine)
            places += [place] * (len(owners) - len(places))
        found = np.zeros(len(connections), bool)
        first = np.array([self._first_place(owner) for owner in owners], np.int64)
        for sorted_places in (self._sorted, self._waiting):
            low, high = (np.searchsorted(sorted_places, first + more) for more in (0, _OFFSET_MASK + 1))
            found[np.array(places, np.int64)[high > low]] = True
        return [bool(has) for has in found]

    def _first_place(self, owner: bytes) -> int:
        """The place in the index at which those of an owner begin."""
        known = self._hashes.get(owner)
        if known is None:
            known = hash_of(owner, self._seed) << OFFSET_BITS
            _put(self._hashes, owner, known)
        return known

    def locate(self, client_random: bytes, ends: bytes) -> None:
        """A connection is between these ends (`name_of_ends`)."""
        _put(self._ends, client_random, ends)
        self._kept.pop(client_random, None)

    def issue(self, name: bytes, client_random: bytes) -> None:
        """A connection of TLS 1.2 got this session id or ticket."""
        _put(self._issued, name, client_random)

    def resume(self, client_random: bytes, names: Sequence[bytes]) -> bool:
        """A connection of TLS 1.2 resumes a session by one of these names. Return whether it is known."""
        for name in names:
            origin = self._issued.get(name)
            if origin is not None and origin != client_random:
                _put(self._origins, client_random, self._origins.get(origin, origin))
                self._kept.pop(client_random, None)
                return True
        _put(self._unknown, client_random, tuple(names))
        return False

    def issued_sessions(self) -> set[bytes]:
        """The names of the sessions that connections of TLS 1.2 got."""
        return set(self._issued)

    def unknown_sessions(self) -> set[bytes]:
        """The names of the sessions that connections of TLS 1.2 resume, and whose secrets were not found."""
        missing = (random for random in self._unknown if random not in self._sessions and self.secrets(random) is None)
        return {name for random in missing for name in self._unknown[random]}

    @property
    def missing(self) -> list[str]:
        """The files and sockets that are not there yet."""
        awaited = {path for path, each in self._sockets.items() if not each.is_connected}
        return [path for path in self.paths if path in awaited or ("://" not in path and not os.path.lexists(path))]

    def begin_run(self) -> None:
        """Another run over captures begins: no connection has taken secrets, and no trial has cost anything."""
        self.trials = Trials()
        self._taken.clear()
        self._issued.clear()
        self._origins.clear()
        self._unknown.clear()
        self._ends.clear()

    def take(self, client_random: bytes) -> None:
        """These secrets are those of a connection, so they are not tried for others."""
        _put(self._taken, client_random, None)

    def traffic_secrets(self) -> Iterator[TrafficSecret]:
        """First traffic secrets of TLS 1.3 that no connection has taken, the latest first. Their number is bounded."""
        if self._traffic is None:
            self._traffic = list(self._latest_traffic())
        return (secret for secret in self._traffic if secret.client_random not in self._taken)

    def lines_for(self, client_randoms: Iterable[bytes]) -> bytes:
        """The lines of these client randoms, as a key log. A secret of a session id is one of the client random of the
        connection that used it."""
        found = []
        for client_random in client_randoms:
            secrets = self.secrets(client_random) or Secrets(client_random)
            known = {label: getattr(secrets, name) for label, name in LABELS.items()}
            session = self._sessions.get(client_random)
            if session and not secrets.master:
                known[b"CLIENT_RANDOM"] = self.master_of_session(session, client_random)
            for label, secret in known.items():
                if secret:
                    found.append(b"%s %s %s\n" % (label, client_random.hex().encode(), secret.hex().encode()))
        return b"".join(found)

    def session_lines(self, most: int) -> bytes:
        """The latest lines with secrets of session ids, as a key log."""
        lines = islice((line for line in self._latest_lines() if not line.name), most)
        texts = [f"RSA Session-ID:{line.owner.hex()} Master-Key:{line.secret.hex()}\n" for line in lines]
        return "".join(reversed(texts)).encode()

    @property
    def problem_lines(self) -> int:
        """Lines that are no lines of a key log."""
        return int(self._counts[PROBLEMS])

    @property
    def line_count(self) -> int:
        """Lines with a secret."""
        return int(self._counts[USED])

    @property
    def problems(self) -> list[str]:
        """What is wrong with files, for users."""
        found = [f"{path}: {note}" for path, note in self._notes.items()]
        if self.problem_lines:
            found.append(f"{self.problem_lines:,} lines of key logs are not in the format of SSLKEYLOGFILE")
        return found

    # ---------------------------------------------------------------- what is new

    def add(self, data: bytes) -> None:
        """Add lines: of a decryption secrets block, or of a socket."""
        offset = self._added.size
        block = data if data.endswith(b"\n") else data + b"\n"
        self._added.append(block)
        self._scan(self._added, bytearray(block), 0, len(block), offset)
        self._sort()

    def poll(self) -> bool:
        """Read what was added to the files; whether there was anything. Costs little if there was nothing."""
        before = self.version
        for each in self._sockets.values():
            if lines := each.read():
                self.add(lines)
        for path in self.paths:
            if path in self._sockets:
                continue
            try:
                status = os.stat(path)
            except OSError:
                continue  # it may come back, as a new file
            file = self._files.get(path)
            if file is None:
                if self._wholes.get(path) != _signature(status):
                    self._reopen(path)
            elif (status.st_dev, status.st_ino) != file.identity or status.st_size < file.read_end:
                self._replace(path, file)
            elif status.st_size > file.read_end:
                if file.is_rewritten():
                    self._replace(path, file)
                else:
                    self._read_file(file)
        if self._new:
            self._sort()
        if len(self._extents) > _EXTENTS:
            self._begin()
        return self.version != before

    def _reopen(self, path: str) -> None:
        with suppress(OSError):
            self._open(path)

    def _replace(self, path: str, file: GrowingLines) -> None:
        """The name is another file's now, or the file was truncated."""
        del self._files[path]
        self._replaced.append(file)
        if len(self._replaced) > _REPLACED:
            self._replaced.pop(0).close()
        self._reopen(path)

    # ---------------------------------------------------------------- scanning

    def _open(self, path: str) -> None:
        before = self.line_count
        self._notes.pop(path, None)
        if is_socket(path):
            if path not in self._sockets:
                self._sockets[path] = LineSocket(path)
        elif is_plain(path):
            file = self._files[path] = GrowingLines(path)
            self._read_file(file)
        else:
            self._read_whole(path)
        if self.line_count == before and path not in self._notes and not self.is_growing:
            self._notes[path] = "no line of it has a secret in the format of SSLKEYLOGFILE"

    def _read_file(self, file: GrowingLines) -> None:
        """Scan the new lines of a file. The last one may be complete without a line end."""
        buffer = bytearray(_BLOCK)
        long_lines = file.blocks.long_lines
        for start, end, passed in file.read_blocks(buffer):
            self._scan(file, buffer, start, end, file.lines_end + start)
            file.lines_end += passed
        self._counts[PROBLEMS] += file.blocks.long_lines - long_lines
        if file.blocks.left >= SHORTEST:
            counts = self._counts.copy()
            self._scan(file, buffer, 0, file.blocks.left, file.lines_end)
            self._counts[PROBLEMS] = counts[PROBLEMS]

    def _read_whole(self, path: str) -> None:
        """Scan a file that has to be kept in memory."""
        if "://" not in path:
            self._wholes[path] = _signature(os.stat(path))
        source, held = WholeFile(path), HeldLines(_HELD)
        blocks, buffer = LineBlocks(), bytearray(_BLOCK)
        for start, end, _ in blocks.read(source.readinto, buffer):
            self._hold(held, buffer, start, end)
        if blocks.left:
            self._hold(held, buffer, 0, blocks.left)
        self._counts[PROBLEMS] += blocks.long_lines
        source.close()
        if source.is_damaged:
            self._notes[path] = "it is damaged and cannot be read to its end"
        elif held.size > _HELD:
            self._notes[path] = f"only its last {_HELD >> 20} MiB are used; decompress it to use all"

    def _hold(self, held: HeldLines, buffer: bytearray, start: int, end: int) -> None:
        if start < end:
            offset = held.size
            held.append(bytes(buffer[start:end]))
            self._scan(held, buffer, start, end, offset)

    def _scan(self, source: LineSource, buffer: bytearray, start: int, end: int, offset: int) -> None:
        """Index the lines in buffer[start:end], which are at `offset` of a source."""
        if start >= end:
            return
        places = find_lines(buffer, start, end, self._end - start, self._seed, self._counts)
        if places.size:
            self.has_sessions = self.has_sessions or buffer.find(b"Session-ID:", start, end) >= 0
            last = self._extents[-1] if self._extents else None
            if last is None or last[1] is not source or last[2] + self._end - last[0] != offset:
                self._extents.append((self._end, source, offset))
            self._end += end - start
            self._new.append(places)
            self.version += 1

    def _sort(self) -> None:
        """Sort the new places: with those that wait, or with all."""
        self._kept.clear()
        self._traffic = None
        count = self._waiting.size + sum(places.size for places in self._new)
        if count > max(_WAITING, self._sorted.size >> 3):
            parts = [self._sorted, self._waiting, *self._new]
            self._sorted = self._waiting = np.zeros(0, np.int64)
            self._new = []
            self._sorted = np.concatenate(parts)
            parts.clear()
            self._sorted.sort()
        else:
            self._waiting = np.sort(np.concatenate([self._waiting, *self._new]))
            self._new = []

    # ---------------------------------------------------------------- reading lines

    def _lines_of(self, owner: bytes) -> Iterator[KeyLine]:
        """The lines of a client random or session id, the latest last."""
        first = self._first_place(owner)
        offsets: list[int] = []
        for places in (self._sorted, self._waiting):
            if places.size:
                low, high = places.searchsorted(first), places.searchsorted(first + _OFFSET_MASK + 1)
                offsets += (places[max(low, high - _SAME) : high] & _OFFSET_MASK).tolist()
        offsets.sort()
        data, first, end = b"", 0, 0  # what was read at once: lines of one owner are near each other
        for number, offset in enumerate(offsets):
            if offset >= end:
                place = bisect_right(self._extents, offset, key=itemgetter(0))
                start, source, at = self._extents[place - 1]
                end = self._extents[place][0] if place < len(self._extents) else self._end
                last = offsets[min(number + _NEAR, len(offsets)) - 1]
                first, end = offset, min(end, (last if last < offset + _NEAR * LONGEST else offset) + 1)
                data = source.read(at + offset - start, end - offset + LONGEST)
            line = _first_line(data[offset - first : offset - first + LONGEST])
            if line is not None and line.owner == owner:
                yield line

    def _latest_traffic(self) -> Iterator[TrafficSecret]:
        """The latest traffic secrets, found from the end of what was scanned."""
        lines = (line for line in self._latest_lines() if line.name in _TRAFFIC_NAMES)
        for line in islice(lines, _TRAFFIC):
            yield TrafficSecret(line.owner, line.name == "server_traffic", line.secret)

    def _latest_lines(self) -> Iterator[KeyLine]:
        """The latest lines, found from the end of what was scanned. How far back is bounded."""
        end = self._end
        oldest = max(0, end - _BACK)
        for start, source, at in reversed(self._extents):
            while end > max(start, oldest):
                first = max(start, end - _BLOCK, oldest)
                data = bytearray(source.read(at + first - start, end - first))
                cut = 0 if first == start else data.find(b"\n") + 1
                if first != start and not 0 < cut < len(data):
                    break
                end = first + cut
                places = find_lines(data, cut, len(data), 0, self._seed, np.zeros(3, np.int64))
                for offset in np.sort(places & _OFFSET_MASK)[::-1].tolist():
                    line = _first_line(bytes(data[offset : offset + LONGEST]))
                    if line is not None:
                        yield line
            end = start


def _put(known: dict[bytes, T], key: bytes, value: T) -> None:
    """Add to what is kept of the latest connections."""
    known[key] = value
    if len(known) > _LATEST:
        del known[next(iter(known))]


def _first_line(data: bytes) -> KeyLine | None:
    return parse_line(data.replace(b"\r", b"\n").partition(b"\n")[0])


def _signature(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
