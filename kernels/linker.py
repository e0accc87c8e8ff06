"""Link the objects of kernels to a shared library of Linux on x86-64 or aarch64, so that a build needs neither a C
compiler nor a linker of the system.

It knows what LLVM makes of kernels, and refuses the rest: code, constants, and tables of addresses; references relative
to their place, addresses in tables, and calls of functions of the C library (memset and the like).

A library has three parts, each at the same place in the file and in memory: tables for the loader with the constants,
code, and what the loader fills in and then makes read-only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_DYNAMIC = struct.Struct("<QQ")
_IDENTITY = b"\x7fELF\x02\x01\x01"  # of 64 bits, little-endian
_OBJECT, _LIBRARY = 1, 3
#: Types of sections.
_BYTES, _SYMBOLS, _TEXTS, _RELOCATIONS, _HASHES, _LOADERS, _LOADED_SYMBOLS = 1, 2, 3, 4, 5, 6, 11
_UNWINDING = b".eh_frame"  # for exceptions and debuggers: left out
#: Flags of sections.
_WRITABLE, _LOADED, _CODE = 1, 2, 4
_FUNCTION = 1 << 4 | 2  # a global one
#: The parts of a library, by their flags.
_PARTS = _LOADED, _LOADED | _CODE, _LOADED | _WRITABLE


class LinkError(Exception):
    """Objects cannot be linked; says why."""


class _Machine(NamedTuple):
    """What differs between processors. `page`: the largest that a kernel may have. Kinds of relocations: `address`,
    that of a symbol in a table; `calls` of functions; `slot` and `own_address`, which the loader fills in: the address
    of another library's function, and one within this library. `write` has the others, and calls.

    `write(content, place, kind, target, at)`: change the content at a place, whose address is `at`. LinkError for an
    unknown kind, or a target that is too far. `stub(stub, slot)`: the code at an address that calls what a slot has.
    """

    number: int
    page: int
    address: int
    calls: tuple[int, ...]
    slot: int
    own_address: int
    write: Callable[[bytearray, int, int, int, int], None]
    stub: Callable[[int, int], bytes]


def _unknown(kind: int) -> LinkError:
    return LinkError(f"an object has a relocation of the kind {kind}")


def _x86_64(content: bytearray, place: int, kind: int, target: int, at: int) -> None:
    if kind not in (2, 4):  # a distance, of data or of a call
        raise _unknown(kind)
    struct.pack_into("<i", content, place, target - at)


def _x86_64_stub(stub: int, slot: int) -> bytes:
    return struct.pack("<2si2x", b"\xff\x25", slot - stub - 6)  # jmp [rip + distance]


#: aarch64: the lowest bits of an address within an instruction that adds them, or loads or stores 1 to 16 bytes there,
#: and by how many bits they are shifted.
_LOW_BITS = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}
_ADRP, _DISTANCE_32, _JUMP, _CALL = 275, 261, 282, 283


def _aarch64(content: bytearray, place: int, kind: int, target: int, at: int) -> None:
    if kind == _DISTANCE_32:
        struct.pack_into("<i", content, place, target - at)
        return
    (word,) = struct.unpack_from("<I", content, place)
    if kind in _LOW_BITS:
        shift = _LOW_BITS[kind]
        if target & ((1 << shift) - 1):
            raise LinkError(f"an object has a relocation of the kind {kind} to an odd place")
        word |= (target & 0xFFF) >> shift << 10
    elif kind in (_JUMP, _CALL):
        word |= _signed(target - at >> 2, 26)
    elif kind == _ADRP:
        pages = _signed((target >> 12) - (at >> 12), 21)
        word |= (pages & 3) << 29 | pages >> 2 << 5
    else:
        raise _unknown(kind)
    struct.pack_into("<I", content, place, word)


def _aarch64_stub(stub: int, slot: int) -> bytes:
    code = bytearray(struct.pack("<4I", 0x90000010, 0xF9400211, 0xD61F0220, 0xD503201F))  # adrp, ldr, br, nop
    _aarch64(code, 0, _ADRP, slot, stub)
    _aarch64(code, 4, 286, slot, stub + 4)
    return bytes(code)


def _signed(value: int, bits: int) -> int:
    """The lowest bits of a number, for a field. LinkError if it does not fit."""
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise LinkError("the library is too large")
    return value & ((1 << bits) - 1)


_MACHINES = {
    each.number: each
    for each in (
        _Machine(62, 4096, 1, (4,), 6, 8, _x86_64, _x86_64_stub),
        _Machine(183, 65_536, 257, (_JUMP, _CALL), 1026, 1027, _aarch64, _aarch64_stub),
    )
}


class _Symbol(NamedTuple):
    name: str
    is_global: bool
    section: int
    value: int
    size: int


class _Named(NamedTuple):
    """A section of the library. `link`: the number of the section with its symbols or texts."""

    name: str
    kind: int
    flags: int
    at: int
    size: int
    link: int = 0
    info: int = 0
    entry: int = 0


class _Piece(NamedTuple):
    """A section of an object: its part in the library, and its place there."""

    part: _Part
    place: int


class _Part:
    """A part of the library. `at`: its place."""

    def __init__(self) -> None:
        self.at = 0
        self.content = bytearray()

    def add(self, content: bytes, align: int = 16) -> int:
        """Append, and return the place within the part."""
        self.content += bytes(-len(self.content) % align)
        self.content += content
        return len(self.content) - len(content)


class _Object:
    """A relocatable object, whose sections are appended to `parts`."""

    def __init__(self, data: bytes, parts: Sequence[_Part]) -> None:
        identity, kind, machine, _, _, _, at, _, _, _, _, size, count, texts = _HEADER.unpack_from(data)
        if not identity.startswith(_IDENTITY) or (kind, size) != (_OBJECT, _SECTION.size) or machine not in _MACHINES:
            raise LinkError("an object is not for x86-64 or aarch64")
        self.machine = _MACHINES[machine]
        headers = [_SECTION.unpack_from(data, at + number * size) for number in range(count)]
        names = data[headers[texts][4] :]
        self.pieces: dict[int, _Piece] = {}
        self.symbols: list[_Symbol] = []
        #: The section that is changed, the place in it, the kind, the number of a symbol, and what to add to it.
        self.relocations: list[tuple[int, int, int, int, int]] = []
        for number, (name, kind, flags, _, at, size, link, changed, align, _) in enumerate(headers):
            content = data[at : at + size]
            if kind == _SYMBOLS:
                self.symbols = list(_symbols(content, data[headers[link][4] :]))
            elif kind == _RELOCATIONS:
                for place, what, more in _RELOCATION.iter_unpack(content):
                    self.relocations.append((changed, place, what & 0xFFFFFFFF, what >> 32, more))
            elif flags & _LOADED and size and names[name : names.index(b"\0", name)] != _UNWINDING:
                known = flags & (_LOADED | _CODE | _WRITABLE)
                if kind != _BYTES or known not in _PARTS or flags & ~0x37:  # 0x30: constants that could be merged
                    raise LinkError(f"an object has a section of the type {kind} with the flags {flags:#x}")
                part = parts[_PARTS.index(known)]
                self.pieces[number] = _Piece(part, part.add(content, max(align, 1)))

    def address(self, symbol: _Symbol) -> int:
        """Where a symbol of the object is in the library."""
        if symbol.section not in self.pieces:
            raise LinkError(f"an object uses {symbol.name or 'a section'}, which is not in the library")
        piece = self.pieces[symbol.section]
        return piece.part.at + piece.place + symbol.value


def _symbols(table: bytes, names: bytes) -> Iterator[_Symbol]:
    for name, info, _, section, value, size in _SYMBOL.iter_unpack(table):
        yield _Symbol(names[name : names.index(b"\0", name)].decode(), info >> 4 != 0, section, value, size)


def link(objects: Sequence[bytes]) -> bytes:
    """Return the shared library of some objects, which exports their global functions. LinkError if there is none."""
    parts = tables, code, filled = _Part(), _Part(), _Part()
    read = [_Object(data, parts) for data in objects]
    machine = read[0].machine
    if any(one.machine != machine for one in read):
        raise LinkError("the objects are for different processors")
    defined: dict[str, tuple[_Object, _Symbol]] = {}
    used = set()
    for one in read:
        for symbol in one.symbols:
            if symbol.is_global and not symbol.section:
                used.add(symbol.name)
            elif symbol.is_global and defined.setdefault(symbol.name, (one, symbol)) != (one, symbol):
                raise LinkError(f"two objects have {symbol.name}")
    elsewhere = sorted(used - defined.keys())
    addresses = sum(
        kind == machine.address for one in read for section, _, kind, *_ in one.relocations if section in one.pieces
    )

    # Everything gets its place. What holds places is written below.
    names = ["", *elsewhere, *defined]
    texts = b"".join(name.encode() + b"\0" for name in names)
    relocations_size = _RELOCATION.size * (addresses + len(elsewhere))
    hashes_at, symbols_at = tables.add(_hashes(names)), tables.add(bytes(_SYMBOL.size * len(names)))
    texts_at, relocations_at = tables.add(texts), tables.add(bytes(relocations_size))
    stub_size = len(machine.stub(0, 0))
    stubs_at, slots_at = code.add(bytes(stub_size * len(elsewhere))), filled.add(bytes(8 * len(elsewhere)))
    dynamic_size = 11 * _DYNAMIC.size
    dynamic_at = filled.add(bytes(dynamic_size))
    tables.at = -(-(_HEADER.size + 6 * _SEGMENT.size) // 64) * 64
    code.at = -(-(tables.at + len(tables.content)) // machine.page) * machine.page
    filled.at = -(-(code.at + len(code.content)) // machine.page) * machine.page

    stubs = {name: code.at + stubs_at + number * stub_size for number, name in enumerate(elsewhere)}
    found = {name: one.address(symbol) for name, (one, symbol) in defined.items()}
    relocations = [entry for one in read for entry in _relocate(one, filled, found, stubs)]
    for number, stub in enumerate(stubs.values(), 1):
        slot = filled.at + slots_at + 8 * (number - 1)
        code.content[stub - code.at : stub - code.at + stub_size] = machine.stub(stub, slot)
        relocations.append(_RELOCATION.pack(slot, number << 32 | machine.slot, 0))
    tables.content[relocations_at : relocations_at + relocations_size] = b"".join(relocations)

    sections = (
        _Named("", 0, 0, 0, 0),
        _Named(".hash", _HASHES, _LOADED, tables.at + hashes_at, symbols_at - hashes_at, 2, entry=4),
        _Named(
            ".dynsym", _LOADED_SYMBOLS, _LOADED, tables.at + symbols_at, _SYMBOL.size * len(names), 3, 1, _SYMBOL.size
        ),
        _Named(".dynstr", _TEXTS, _LOADED, tables.at + texts_at, len(texts)),
        _Named(
            ".rela.dyn", _RELOCATIONS, _LOADED, tables.at + relocations_at, relocations_size, 2, entry=_RELOCATION.size
        ),
        _Named(".text", _BYTES, _LOADED | _CODE, code.at, len(code.content)),
        _Named(".data.rel.ro", _BYTES, _LOADED | _WRITABLE, filled.at, dynamic_at),
        _Named(".dynamic", _LOADERS, _LOADED | _WRITABLE, filled.at + dynamic_at, dynamic_size, 3, entry=_DYNAMIC.size),
    )
    name_at = 0
    for number, name in enumerate(names):
        if number:
            size = defined[name][1].size if name in defined else 0
            section = 5 if name in defined else 0
            _SYMBOL.pack_into(
                tables.content, symbols_at + number * _SYMBOL.size, name_at, _FUNCTION, 0, section,
                found.get(name, 0), size,
            )  # fmt: skip
        name_at += len(name.encode()) + 1
    dynamic = (
        (4, tables.at + hashes_at), (5, tables.at + texts_at), (6, tables.at + symbols_at), (10, len(texts)),
        (11, _SYMBOL.size), (7, tables.at + relocations_at), (8, relocations_size), (9, _RELOCATION.size),
        (30, 8), (0x6FFFFFFB, 1), (0, 0),  # everything is filled in when the library is opened
    )  # fmt: skip
    filled.content[dynamic_at:] = b"".join(_DYNAMIC.pack(*pair) for pair in dynamic)
    return _file(machine, parts, sections, filled.at + dynamic_at, dynamic_size)


def _relocate(one: _Object, filled: _Part, found: dict[str, int], stubs: dict[str, int]) -> Iterator[bytes]:
    """Write the references of an object; yield what the loader has to fill in. `found`, `stubs`: addresses of functions
    by name, and of what calls those of other libraries."""
    for section, offset, kind, number, more in one.relocations:
        if section not in one.pieces:  # what is left out
            continue
        (part, place), symbol = one.pieces[section], one.symbols[number]
        if symbol.section:
            target = one.address(symbol)
        elif symbol.name in found:
            target = found[symbol.name]
        elif kind in one.machine.calls:
            target = stubs[symbol.name]
        else:
            raise LinkError(f"an object has the address of {symbol.name}, which no object has")
        at = part.at + place + offset
        if kind == one.machine.address and part is filled:
            yield _RELOCATION.pack(at, one.machine.own_address, target + more)
        else:
            one.machine.write(part.content, place + offset, kind, target + more, at)


def _hashes(names: Sequence[str]) -> bytes:
    """The table by which the loader finds symbols (that of System V, which every loader knows)."""
    size = len(names)
    buckets, chains = [0] * size, [0] * size
    for number, name in enumerate(names[1:], 1):
        value = 0
        for byte in name.encode():
            value = (value << 4) + byte
            value = (value ^ (value >> 24 & 0xF0)) & 0x0FFFFFFF
        chains[number], buckets[value % size] = buckets[value % size], number
    return struct.pack(f"<{2 + 2 * size}I", size, size, *buckets, *chains)


def _file(
    machine: _Machine, parts: Sequence[_Part], sections: Sequence[_Named], dynamic: int, size: int
) -> bytes:  # fmt: skip
    """The file of some parts. `dynamic`, `size`: the place and size of what the loader reads first."""
    tables, code, filled = parts
    end = filled.at + len(filled.content)
    read, run, write = 4, 5, 6
    page = machine.page
    whole = -(-len(filled.content) // page) * page
    segments = (
        (1, read, 0, tables.at + len(tables.content), page),
        (1, run, code.at, len(code.content), page),
        (1, write, filled.at, whole, page),
        (2, write, dynamic, size, 8),
        (0x6474E552, read, filled.at, whole, 1),  # read-only, once it is filled in
        (0x6474E551, write, 0, 0, 16),  # no code on the stack
    )
    own_name = ".shstrtab"
    names = b"".join(name.encode() + b"\0" for name in (*(section.name for section in sections), own_name))
    sections = [*sections, _Named(own_name, _TEXTS, 0, end, len(names))]
    headers_at = -(-(end + len(names)) // 8) * 8
    count = len(sections)
    made = bytearray(headers_at)
    _HEADER.pack_into(
        made, 0, _IDENTITY.ljust(16, b"\0"), _LIBRARY, machine.number, 1, 0, _HEADER.size, headers_at, 0, _HEADER.size,
        _SEGMENT.size, len(segments), _SECTION.size, count, count - 1,
    )  # fmt: skip
    for number, (kind, flags, at, length, align) in enumerate(segments):
        in_file = min(length, end - at)
        _SEGMENT.pack_into(made, _HEADER.size + number * _SEGMENT.size, kind, flags, at, at, at, in_file, length, align)
    for part in parts:
        made[part.at : part.at + len(part.content)] = part.content
    made[end : end + len(names)] = names
    name_at = 0
    for name, kind, flags, at, length, other, info, entry in sections:
        address, align = (at if flags else 0), (16 if flags else 1) if kind else 0
        made += _SECTION.pack(name_at, kind, flags, address, at, length, other, info, align, entry)
        name_at += len(name) + 1
    return bytes(made)
