"""Chunks to TLS records: the kernel that finds TLS connections and walks their records.

A record that lies whole in one chunk is emitted where it lies. Others are gathered in rows of a bounded table, if they
are wanted. Bytes that were not captured cost the record that they belong to. If a header is among them, the next one is
searched, first at the start of chunks.
"""

from __future__ import annotations

import numpy as np

from kafkatap.dissector.framing.tables import SHOWS_TLS
from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper
from kafkatap.kernels.table import rows_left, take_row
from kafkatap.reassembly.dtypes import (
    CHUNK,
    CHUNK_DATA,
    CHUNK_END,
    CHUNK_GAP,
    CHUNK_STALL,
    CHUNK_START,
    FROM_BLOCK,
    OPENING_RESUMED,
    OPENING_SYN,
    OPENING_UNKNOWN,
)

from .estimates import begin_turns, end_turn, note_record, suspend_turns
from .record_header import (
    APPLICATION_DATA,
    CHANGE_CIPHER_SPEC,
    CLIENT_HELLO,
    HANDSHAKE,
    RECORD_HEADER,
    SERVER_HELLO,
    length_of_header,
    record_length,
)
from .record_tables import (
    EMIT_ALL,
    EMIT_HANDSHAKE,
    FLOW_HEADER,
    FLOW_PROXY,
    FLOW_SEARCH,
    FLOW_STOPPED,
    FROM_GATHERED,
    LINK_COUNTED,
    LINK_MIDDLE,
    LINK_PLAIN,
    LINK_START,
    LINK_TRACKED,
    MIDDLE_CHUNKS,
    RECORD_ROOM,
    ROW_BEGIN,
    ROW_BROKEN,
    ROW_END,
    ROW_NOT_TLS,
    ROW_PASS,
    ROW_RECORD,
    SHOWN_BY,
    RecordTables,
)

#: Rows that must be free before a step.
ROWS_ROOM = 4
#: Records that are read of a connection that is not decrypted.
MOST_EARLY = 64
#: Records with application data of each direction among them: in TLS 1.3 they end the handshake.
FIRST_RECORDS = 8
#: A PROXY header of version 1 is no longer, that of version 2 has so many bytes before its variable part.
LONGEST_PROXY_1, PROXY_2 = 107, 16


@helper
def _is_hello(buf, at, end):  # type: ignore[no-untyped-def]
    """Whether a record of which `at` is the header begins with a hello, whose length has three bytes."""
    if end - at < RECORD_HEADER + 2 or buf[np.uintp(at)] != HANDSHAKE or buf[np.uintp(at + RECORD_HEADER + 1)] != 0:
        return False
    message = buf[np.uintp(at + RECORD_HEADER)]
    return message == CLIENT_HELLO or message == SERVER_HELLO


@helper
def _header_place(buf, at, end, is_chunk_start):  # type: ignore[no-untyped-def]
    """The place of the first header in buf[at:end], or -1. A header of application data is distinct enough. Another
    one has to be at the start of a chunk, and a hello must follow, or its record must end with the chunk or before
    another header."""
    for place in range(at, end - RECORD_HEADER + 1):
        if buf[np.uintp(place + 1)] != 3:
            continue
        length = record_length(buf, place)
        if length == 0:
            continue
        if buf[np.uintp(place)] == APPLICATION_DATA and buf[np.uintp(place + 2)] == 3:
            return np.int64(place)
        if is_chunk_start and place == at:
            if place + length == end or _is_hello(buf, place, end):
                return np.int64(place)
            if place + length + RECORD_HEADER <= end and record_length(buf, place + length) > 0:
                return np.int64(place)
    return np.int64(-1)


@helper
def _add_row(t, kind, slot, d, place, chunk):  # type: ignore[no-untyped-def]
    """Add a row, and return its number."""
    walk = t.walk[0]
    number = np.int64(walk.rows)
    walk.rows = number + 1
    row = t.rows[number]
    row.at = 0
    row.ts = chunk.ts
    row.packet = chunk.packet
    row.before = 0
    row.seq = 0
    row.length = 0
    row.missing = 0
    row.slot = slot
    row.place = place
    row.row = -1
    row.direction = d
    row.type = 0
    row.source = FROM_GATHERED
    row.kind = kind
    row.is_early = 0
    row.whole = 0
    row.stamp = chunk.stamp
    return number


@helper
def _begin_flow(flow, mode, emit):  # type: ignore[no-untyped-def]
    """Begin a direction of a tracked connection."""
    flow.header = 0
    flow.bytes = 0
    flow.before = 0
    flow.records = 0
    flow.ended = 0
    flow.lost = 0
    flow.need = 0
    flow.have = 0
    flow.missing = 0
    flow.row = -1
    flow.seq = 0
    flow.mode = mode
    flow.emit = emit
    flow.proxy = 0
    flow.version = 0
    flow.proxy_left = 0
    flow.was_full = 0


@helper
def _begin_tracking(t, link, c, d, mode, other_mode, place, chunk, emit):  # type: ignore[no-untyped-def]
    """Track a connection from direction `d` on. The caller has checked that a slot is free."""
    slot = take_row(t.free_slots)
    link.slot = slot
    link.state = LINK_TRACKED
    track = t.tracks[slot]
    track.connection = c
    track.early = MOST_EARLY
    begin_turns(track, other_mode == FLOW_SEARCH)
    _begin_flow(t.flows[2 * slot + d], mode, emit)
    _begin_flow(t.flows[2 * slot + 1 - d], other_mode, emit)
    _add_row(t, ROW_BEGIN, slot, d, place, chunk)


@helper
def _stop_tracking(t, link, d, place, chunk, kind):  # type: ignore[no-untyped-def]
    """The connection is no TLS, or it is over."""
    slot = np.int64(link.slot)
    end_turn(t, slot, t.tracks[slot], True)
    link.state = LINK_PLAIN
    for side in range(2):
        t.flows[2 * slot + side].mode = FLOW_STOPPED
    _add_row(t, kind, slot, d, place, chunk)


@helper
def _note_hello(t, slot, d, message):  # type: ignore[no-untyped-def]
    """Note the client if the first message of a handshake record is a hello."""
    if message == CLIENT_HELLO or message == SERVER_HELLO:
        t.links[t.tracks[slot].connection].hello = d if message == CLIENT_HELLO else 1 - d


@helper
def _is_early(t, slot, flow, content):  # type: ignore[no-untyped-def]
    """Whether a record of this content type may be of the handshake."""
    return t.tracks[slot].early > 0 and (content != APPLICATION_DATA or flow.records < FIRST_RECORDS)


@helper
def _is_wanted(t, slot, flow, content):  # type: ignore[no-untyped-def]
    """Whether a record of this content type is emitted."""
    return flow.emit == EMIT_ALL or (flow.emit == EMIT_HANDSHAKE and _is_early(t, slot, flow, content))


@helper
def _end_record(t, slot, d, flow, place, chunk, content, source, at, is_wanted):  # type: ignore[no-untyped-def]
    """The current record is over: emit it if it is wanted."""
    if content == APPLICATION_DATA:
        note_record(t, slot, d, flow, np.int64(flow.need), np.int64(chunk.ts))
    flow.ended += 1
    is_early = _is_early(t, slot, flow, content)
    if is_early:
        t.tracks[slot].early -= 1
    if flow.missing > 0 and flow.row >= 0 and not is_wanted:
        is_wanted = True  # its row has to be released
    if flow.missing > 0:
        flow.lost += 1
    if content == APPLICATION_DATA:
        flow.records += 1
    if is_wanted:
        row = t.rows[_add_row(t, ROW_BROKEN if flow.missing > 0 else ROW_RECORD, slot, d, place, chunk)]
        row.at = at
        row.source = source
        row.before = flow.before
        row.seq = flow.seq
        row.length = flow.need
        row.missing = flow.missing
        row.row = flow.row
        row.type = content
        row.is_early = is_early
        row.whole = flow.whole if flow.missing > 0 else flow.need
    flow.before = 0
    flow.need = 0
    flow.have = 0
    flow.missing = 0
    flow.header = 0
    flow.row = -1


@helper
def _copy(t, row, offset, buf, at, count):  # type: ignore[no-untyped-def]
    """Copy `count` bytes to a gathered row."""
    base = row * RECORD_ROOM + offset
    for k in range(count):
        t.gathered[np.uintp(base + k)] = buf[np.uintp(at + k)]


@helper
def _begin_gathering(t, slot, flow):  # type: ignore[no-untyped-def]
    """A header is complete, but its record is not: gather it if it is wanted."""
    content = (flow.header >> 32) & 255
    flow.row = -1
    if not _is_wanted(t, slot, flow, content):
        return
    if rows_left(t.free_rows) == 0:
        t.walk[0].skipped += 1
        flow.missing = 1  # it counts as lost
        flow.whole = 0
        return
    flow.row = take_row(t.free_rows)
    base = np.int64(flow.row) * RECORD_ROOM
    for k in range(RECORD_HEADER):
        t.gathered[np.uintp(base + k)] = (flow.header >> (8 * (RECORD_HEADER - 1 - k))) & 255


@helper
def _add_to_header(flow, buf, at, end):  # type: ignore[no-untyped-def]
    """Add bytes to a header that a chunk has cut; return the place behind them."""
    while at < end and flow.have < RECORD_HEADER:
        flow.header = (flow.header << 8) | np.int64(buf[np.uintp(at)])
        flow.have += 1
        at += 1
    return at


@helper
def _read_bytes(t, slot, d, flow, buf, first, at, end, place, chunk):  # type: ignore[no-untyped-def]
    """Read buf[at:end], captured bytes of a chunk that begins at `first`. Return the place of the first byte that was
    not read: there was no room for rows, or what comes is no record (`need` is -1)."""
    while at < end:
        if t.walk[0].rows + ROWS_ROOM > t.rows.shape[0] or t.walk[0].estimates + ROWS_ROOM > t.estimates.shape[0]:
            return at
        if at > first and t.walk[0].rows > 0 and rows_left(t.free_rows) == 0:
            return at  # rows of records that were emitted become free
        if flow.mode == FLOW_SEARCH:
            found = _header_place(buf, at, end, at == first)
            if found < 0:
                flow.before += end - at
                return end
            flow.before += found - at
            at = found
            flow.mode = FLOW_HEADER
        if flow.have == 0:
            flow.seq = (np.int64(chunk.seq) + at - first) & 0xFFFFFFFF
            if end - at >= RECORD_HEADER:
                length = record_length(buf, at)
                if length == 0:
                    flow.need = -1
                    return at
                if end - at >= length:  # the usual case
                    content = np.int64(buf[np.uintp(at)])
                    flow.need = length
                    if content == HANDSHAKE and length > RECORD_HEADER:
                        _note_hello(t, slot, d, np.int64(buf[np.uintp(at + RECORD_HEADER)]))
                    source = np.int64(chunk.source)
                    is_wanted = _is_wanted(t, slot, flow, content)
                    _end_record(t, slot, d, flow, place, chunk, content, source, at, is_wanted)
                    at += length
                    continue
        if flow.have < RECORD_HEADER:
            at = _add_to_header(flow, buf, at, end)
            if flow.have < RECORD_HEADER:
                return end
            flow.need = length_of_header(flow.header)
            if flow.need == 0:
                flow.need = -1
                return at
            _begin_gathering(t, slot, flow)
        count = min(end - at, np.int64(flow.need - flow.have))
        if flow.row >= 0:
            _copy(t, np.int64(flow.row), np.int64(flow.have), buf, at, count)
        flow.have += count
        at += count
        if flow.have == flow.need:
            content = (flow.header >> 32) & 255
            is_wanted = flow.row >= 0 or _is_wanted(t, slot, flow, content)
            at_row = max(np.int64(flow.row), np.int64(0)) * RECORD_ROOM
            if content == HANDSHAKE and flow.row >= 0 and flow.missing == 0:
                _note_hello(t, slot, d, np.int64(t.gathered[np.uintp(at_row + RECORD_HEADER)]))
            if is_wanted and flow.row < 0:
                flow.missing = max(np.int64(flow.missing), np.int64(1))
                flow.whole = 0
            _end_record(t, slot, d, flow, place, chunk, content, np.int64(FROM_GATHERED), at_row, is_wanted)
    return at


@helper
def _skip_bytes(t, slot, d, flow, length, place, chunk):  # type: ignore[no-untyped-def]
    """`length` bytes were not captured."""
    if flow.mode != FLOW_HEADER or length <= 0:
        if flow.mode == FLOW_SEARCH:
            flow.before += length
        return
    if flow.have < RECORD_HEADER:
        suspend_turns(t.tracks[slot])
        flow.before += flow.have + length
        flow.have = 0
        flow.need = 0
        flow.header = 0
        flow.mode = FLOW_SEARCH
        return
    rest = min(length, np.int64(flow.need - flow.have))
    if flow.missing == 0:
        flow.whole = flow.have
    flow.have += rest
    flow.missing += rest
    if flow.have == flow.need:
        content = (flow.header >> 32) & 255
        is_wanted = _is_wanted(t, slot, flow, content)
        at = max(np.int64(flow.row), np.int64(0)) * RECORD_ROOM
        _end_record(t, slot, d, flow, place, chunk, content, np.int64(FROM_GATHERED), at, is_wanted)
        if length > rest:
            flow.before = length - rest
            flow.mode = FLOW_SEARCH


@helper
def _is_proxy_byte(version, k, value):  # type: ignore[no-untyped-def]
    """Whether byte k of a PROXY header of a version may have this value."""
    if version == 1:
        if k < 6:
            return value == (0x50, 0x52, 0x4F, 0x58, 0x59, 0x20)[k]
        return True
    if k < 12:
        return value == (0x0D, 0x0A, 0x0D, 0x0A, 0x00, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A)[k]
    return k != 12 or value >> 4 == 2


@helper
def _read_proxy(flow, buf, at, end):  # type: ignore[no-untyped-def]
    """Read bytes of a PROXY header. Return the place behind them; the mode is another one if the header is over, or if
    there is none."""
    while at < end and flow.mode == FLOW_PROXY:
        value = np.int64(buf[np.uintp(at)])
        if flow.proxy == 0:
            flow.version = 1 if value == 0x50 else 2
        if flow.version == 1 or flow.proxy < PROXY_2:
            if not _is_proxy_byte(flow.version, np.int64(flow.proxy), value):
                flow.mode = FLOW_STOPPED
                return at
            flow.proxy += 1
            at += 1
            if flow.version == 1:
                if value == 0x0A:
                    flow.mode = FLOW_HEADER
                elif flow.proxy >= LONGEST_PROXY_1:
                    flow.mode = FLOW_STOPPED
            elif flow.proxy > PROXY_2 - 2:
                flow.proxy_left = (np.int64(flow.proxy_left) << 8) | value
                if flow.proxy == PROXY_2 and flow.proxy_left == 0:
                    flow.mode = FLOW_HEADER
        else:
            count = min(np.int64(flow.proxy_left), end - at)
            flow.proxy_left -= count
            at += count
            if flow.proxy_left == 0:
                flow.mode = FLOW_HEADER
    return at


@helper
def _read_tracked(t, link, d, buf, chunk, place):  # type: ignore[no-untyped-def]
    """Read a DATA or GAP chunk of a tracked connection. Return whether it is done."""
    slot = np.int64(link.slot)
    flow = t.flows[2 * slot + d]
    walk = t.walk[0]
    if chunk.kind == CHUNK_GAP:
        if flow.mode == FLOW_PROXY:
            _stop_tracking(t, link, d, place, chunk, ROW_NOT_TLS)
        else:
            _skip_bytes(t, slot, d, flow, np.int64(chunk.length), place, chunk)
        return True
    first = np.int64(chunk.at)
    at = first + np.int64(walk.offset)
    end = first + np.int64(chunk.captured)
    if flow.mode == FLOW_PROXY:
        at = _read_proxy(flow, buf, at, end)
        if flow.mode == FLOW_PROXY and chunk.length == chunk.captured:
            t.owners[place] = -1
            return True
        if flow.mode != FLOW_HEADER or (at < end and buf[np.uintp(at)] != HANDSHAKE):
            _stop_tracking(t, link, d, place, chunk, ROW_NOT_TLS)
            return True
        if at == end:
            t.owners[place] = -1
            return True
        row = t.rows[_add_row(t, ROW_PASS, slot, d, place, chunk)]
        row.at = first
        row.length = at - first
        row.seq = chunk.seq
        row.source = chunk.source
        walk.offset = at - first
        flow.bytes -= at - first
    is_behind_proxy = flow.mode == FLOW_HEADER and flow.proxy > 0 and flow.bytes == 0 and at == first
    if is_behind_proxy and (at == end or buf[np.uintp(at)] != HANDSHAKE):
        _stop_tracking(t, link, d, place, chunk, ROW_NOT_TLS)
        return True
    if flow.mode == FLOW_STOPPED:
        return True
    if walk.offset == 0 or flow.bytes < 0:
        flow.bytes += np.int64(chunk.length)
    while True:
        at = _read_bytes(t, slot, d, flow, buf, first, at, end, place, chunk)
        if flow.need != -1:
            break
        # No header: the connection is no TLS, or a header of before was none.
        if flow.ended == 0 and flow.before == 0 and t.flows[2 * slot + 1 - d].ended == 0:
            _stop_tracking(t, link, d, place, chunk, ROW_NOT_TLS)
            return True
        flow.before += flow.have
        flow.need = 0
        flow.have = 0
        flow.header = 0
        flow.mode = FLOW_SEARCH
        if at < end:
            flow.before += 1
            at += 1
    walk.offset = at - first
    if at < end:
        return False
    _skip_bytes(t, slot, d, flow, np.int64(chunk.length) - np.int64(chunk.captured), place, chunk)
    return True


@helper
def _may_begin(link, buf, chunk):  # type: ignore[no-untyped-def]
    """The mode of a chunk's direction if the chunk may begin a connection's TLS; -1. It is a DATA chunk."""
    at, captured = np.int64(chunk.at), np.int64(chunk.captured)
    if captured == 0:
        return np.int64(-1)
    value = buf[np.uintp(at)]
    if link.state == LINK_START:
        if link.client != chunk.direction:
            return np.int64(-1)
        if value == HANDSHAKE:
            return np.int64(FLOW_HEADER)
        return np.int64(FLOW_PROXY) if value == 0x50 or value == 0x0D else np.int64(-1)
    if captured <= RECORD_HEADER or not CHANGE_CIPHER_SPEC <= value <= APPLICATION_DATA:
        return np.int64(-1)
    length = record_length(buf, at)
    if length == 0:
        return np.int64(-1)
    if length + RECORD_HEADER <= captured and record_length(buf, at + length) == 0:
        return np.int64(-1)
    return np.int64(FLOW_HEADER)


@helper
def _read_untracked(t, link, c, d, buf, chunk, place, emit, room):  # type: ignore[no-untyped-def]
    """Look at a chunk of a connection in state LINK_START or LINK_MIDDLE. Return whether it is done: it has to be read
    again if the connection is tracked now, or if there is no slot for it."""
    if chunk.kind == CHUNK_GAP or chunk.length == 0:
        if link.state == LINK_START:
            link.state = LINK_MIDDLE
        return True
    mode = _may_begin(link, buf, chunk)
    if mode < 0:
        link.tries += 1
        if link.state == LINK_START and link.client == d:
            link.state = LINK_PLAIN
        elif link.state == LINK_START or link.tries >= MIDDLE_CHUNKS:
            link.state = LINK_COUNTED
        return True
    if room <= 0:
        if link.state == LINK_START and mode == FLOW_HEADER:
            link.headers = SHOWN_BY - 1
        link.state = LINK_COUNTED
        return True
    if rows_left(t.free_slots) == 0:
        t.walk[0].needs_slots = 1
        return False
    other = FLOW_HEADER if link.state == LINK_START else FLOW_SEARCH
    _begin_tracking(t, link, c, d, mode, np.int64(other), place, chunk, emit)
    return False


@helper
def _mark_tls(t, link, d, buf, chunk):  # type: ignore[no-untyped-def]
    """Mark a DATA chunk that was read if it is the one that shows that its connection is TLS."""
    if link.headers >= SHOWN_BY:
        return
    if chunk.captured >= RECORD_HEADER and record_length(buf, np.int64(chunk.at)) > 0:
        link.headers += 1
    if link.state == LINK_TRACKED and link.client == d and not t.tracks[link.slot].is_middle:
        flow = t.flows[2 * np.int64(link.slot) + d]
        if flow.need > 0 or flow.ended > 0:
            link.headers = SHOWN_BY
    if link.headers == SHOWN_BY:
        chunk.opening = SHOWS_TLS
        if link.state == LINK_COUNTED:
            link.state = LINK_PLAIN


@helper
def _start(t, c, chunk):  # type: ignore[no-untyped-def]
    """A connection begins."""
    link = t.links[c]
    if chunk.opening == OPENING_RESUMED:
        return
    link.slot = -1
    link.tries = 0
    link.headers = 0
    link.client = -1 if chunk.opening == OPENING_UNKNOWN else np.int64(chunk.direction)
    link.hello = -1
    link.state = LINK_START if chunk.opening == OPENING_SYN else LINK_MIDDLE


@kernel(RecordTables, np.uint8, np.uint8, CHUNK, int, int, int)
def walk_chunks(t, block, held, chunks, count, emit, room):  # type: ignore[no-untyped-def]
    """Read chunks[walk.chunk:count], whose bytes lie in `block` and `held`. Return the first one that is not done, as
    there was no room for more rows, or no slot. `emit`: which records of new connections are wanted (EMIT_...).
    `room`: how many more connections may be tracked."""
    walk = t.walk[0]
    walk.rows = 0
    walk.estimates = 0
    walk.needs_slots = 0
    i = np.int64(walk.chunk)
    while i < count:
        if walk.rows + 2 * ROWS_ROOM > t.rows.shape[0] or walk.estimates + 2 * ROWS_ROOM > t.estimates.shape[0]:
            break
        if walk.rows > 0 and rows_left(t.free_rows) == 0:
            break
        chunk = chunks[i]
        c = np.int64(chunk.connection)
        if chunk.kind == CHUNK_START:
            _start(t, c, chunk)
            t.owners[i] = -1
            i += 1
            continue
        link = t.links[c]
        if link.state == LINK_PLAIN or chunk.kind == CHUNK_STALL:
            t.owners[i] = -1
            i += 1
            continue
        d = np.int64(chunk.direction)
        buf = block if chunk.source == FROM_BLOCK else held
        if chunk.kind == CHUNK_END:
            t.owners[i] = -1
            if link.state == LINK_TRACKED:
                _stop_tracking(t, link, d, i, chunk, ROW_END)
            link.state = LINK_PLAIN
            i += 1
            continue
        is_done = True
        if link.state != LINK_TRACKED:
            t.owners[i] = -1
        if link.state == LINK_START or link.state == LINK_MIDDLE:
            is_done = _read_untracked(t, link, c, d, buf, chunk, i, emit, room)
            if not is_done:
                if walk.needs_slots:
                    break
                room -= 1
        if link.state == LINK_TRACKED:
            t.owners[i] = link.slot
            walk.owned += 1
            is_done = _read_tracked(t, link, d, buf, chunk, i)
        if not is_done:
            break
        if chunk.kind == CHUNK_DATA:
            _mark_tls(t, link, d, buf, chunk)
        walk.offset = 0
        i += 1
    walk.chunk = i
    return i
