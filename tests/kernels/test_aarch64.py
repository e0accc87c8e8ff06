"""Libraries for aarch64, made on this machine and run by an emulator of the processor (unicorn)."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from kafkatap.kernels import library, make_library, platforms
from kafkatap.kernels.linker import link

from .small import PAIR, data, read_pairs
from .test_linker import AARCH64, CALLER, FOUR, compiled

unicorn = pytest.importorskip("unicorn")
from unicorn import arm64_const as arm  # noqa: E402

pytestmark = pytest.mark.skipif(platforms.compiler() is None, reason="numba does not compile here")
_BASE, _STACK, _DATA, _END = 0x10_0000, 0x4000_0000, 0x5000_0000, 0x6000_0000
_SIZE = 1 << 20


class Loaded:
    """A library in the memory of an emulated processor. It does what the system's loader does."""

    def __init__(self, content: bytes) -> None:
        self.processor = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        header = struct.unpack_from("<16sHHIQQQIHHHHHH", content)
        assert header[2] == 183
        for place in (_STACK, _DATA, _END):
            self.processor.mem_map(place, _SIZE)
        self.processor.mem_map(_BASE, _SIZE)
        self.functions: dict[str, int] = {}
        for number in range(header[10]):
            kind, _, offset, address, _, size, _, align = struct.unpack_from("<IIQQQQQQ", content, 64 + 56 * number)
            if kind == 1:
                assert align == 65_536
                self.processor.mem_write(_BASE + address, content[offset : offset + size])
        sections = [struct.unpack_from("<IIQQQQIIQQ", content, header[6] + 64 * n) for n in range(header[12])]
        for _, kind, _, _, at, size, other, *_ in sections:
            if kind == 11:
                names = content[sections[other][4] :]
                for name, _, _, section, value, _ in struct.iter_unpack("<IBBHQQ", content[at : at + size]):
                    if section:
                        self.functions[names[name : names.index(b"\0", name)].decode()] = _BASE + value
            elif kind == 4:
                for place, what, more in struct.iter_unpack("<QQq", content[at : at + size]):
                    assert what & 0xFFFFFFFF in (1026, 1027)
                    value = _BASE + more if what & 0xFFFFFFFF == 1027 else _END + 16
                    self.processor.mem_write(_BASE + place, struct.pack("<Q", value))

    def call(self, name: str, *arguments: int) -> int:
        """Call a function with up to eight 64-bit arguments."""
        for number, value in enumerate(arguments):
            self.processor.reg_write(getattr(arm, f"UC_ARM64_REG_X{number}"), value & (2**64 - 1))
        self.processor.reg_write(arm.UC_ARM64_REG_SP, _STACK + _SIZE - 64)
        self.processor.reg_write(arm.UC_ARM64_REG_X30, _END)
        self.processor.emu_start(self.functions[name], _END, count=1_000_000)
        return int(np.uint64(self.processor.reg_read(arm.UC_ARM64_REG_X0)).astype(np.int64))


def test_objects_call_each_other_and_read_constants() -> None:
    loaded = Loaded(link([compiled(text, AARCH64) for text in (CALLER, FOUR)]))
    assert [loaded.call("b.twice", at) for at in range(4)] == [10, 14, 22, 26]


def test_a_table_of_addresses_is_filled_in() -> None:
    text = """
    @one = private constant i64 31
    @two = private constant i64 37
    @table = internal constant [2 x i64*] [i64* @one, i64* @two]
    define i64 @read(i64 %at) nounwind {
      %place = getelementptr [2 x i64*], [2 x i64*]* @table, i64 0, i64 %at
      %pointer = load i64*, i64** %place
      %number = load i64, i64* %pointer
      ret i64 %number
    }
    """
    loaded = Loaded(link([compiled(text, AARCH64), compiled(FOUR, AARCH64)]))
    assert [loaded.call("read", at) for at in range(2)] == [31, 37]


def test_functions_of_the_c_library_are_called_by_their_slots() -> None:
    text = """
    declare i64 @other(i64)
    define i64 @call(i64 %at) nounwind {
      %number = call i64 @other(i64 %at)
      %more = add i64 %number, 1
      ret i64 %more
    }
    """
    loaded = Loaded(link([compiled(text, AARCH64)]))
    loaded.processor.mem_write(_END + 16, struct.pack("<2I", 0x8B000000, 0xD65F03C0))  # add x0, x0, x0; ret
    assert loaded.call("call", 20) == 41


def test_a_kernel_returns_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(platforms.SETTING, "linux-aarch64")
    lines = list(make_library.make_library(tmp_path / "made", ["tests.kernels.small"], installed=True))
    assert lines[-1].endswith("for linux-aarch64")
    loaded = Loaded((tmp_path / "made" / library.LIBRARY).read_bytes())
    assert loaded.call(library.CHECK) == 1
    numbers, pairs = data(), np.zeros(20, PAIR)
    wanted = read_pairs(np.frombuffer(numbers, np.uint8).copy(), pairs, 3)
    loaded.processor.mem_write(_DATA, numbers)
    rows = _DATA + 4_096
    assert loaded.call(read_pairs.qualified_name, _DATA, len(numbers), rows, len(pairs), 3) == wanted
    assert bytes(loaded.processor.mem_read(rows, pairs.nbytes)) == pairs.tobytes()
