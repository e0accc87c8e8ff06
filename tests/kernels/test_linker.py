"""The linker of kernels: what it makes is loaded and called, and what it does not know it refuses."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from kafkatap.kernels.linker import LinkError, link

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="needs Linux on x86-64"
)


def compiled(text: str, triple: str = "x86_64-unknown-linux-gnu") -> bytes:
    """The object of a module of LLVM."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple)
    cpu = "x86-64" if triple.startswith("x86") else "generic"
    machine = target.create_target_machine(cpu=cpu, opt=2, reloc="pic", codemodel="small")
    code: bytes = machine.emit_object(llvm.parse_assembly(text))
    return code


def loaded(tmp_path: Path, *modules: str) -> ctypes.CDLL:
    path = tmp_path / "linked.so"
    path.write_bytes(link([compiled(text) for text in modules]))
    return ctypes.CDLL(str(path))


AARCH64 = "aarch64-unknown-linux-gnu"
FOUR = """
@numbers = private constant [4 x i64] [i64 5, i64 7, i64 11, i64 13], align 32
define i64 @"a.number"(i64 %at) nounwind {
  %place = getelementptr [4 x i64], [4 x i64]* @numbers, i64 0, i64 %at
  %number = load i64, i64* %place
  ret i64 %number
}
"""
CALLER = """
declare i64 @"a.number"(i64)
define i64 @"b.twice"(i64 %at) {
  %number = call i64 @"a.number"(i64 %at)
  %twice = mul i64 %number, 2
  ret i64 %twice
}
"""


def test_an_object_calls_another_and_reads_constants(tmp_path: Path) -> None:
    library = loaded(tmp_path, CALLER, FOUR)
    assert [library["b.twice"](at) for at in range(4)] == [10, 14, 22, 26]
    assert [library["a.number"](at) for at in range(4)] == [5, 7, 11, 13]


def test_functions_of_the_c_library_are_called(tmp_path: Path) -> None:
    text = """
    declare i8* @memset(i8*, i32, i64)
    declare i8* @memcpy(i8*, i8*, i64)
    define void @fill(i8* %to, i8* %from, i64 %size) nounwind {
      %1 = call i8* @memset(i8* %to, i32 120, i64 %size)
      %2 = call i8* @memcpy(i8* %to, i8* %from, i64 3)
      ret void
    }
    """
    room = ctypes.create_string_buffer(10)
    loaded(tmp_path, text).fill(room, b"abc", ctypes.c_int64(9))
    assert room.raw == b"abcxxxxxx\0"


def test_tables_of_addresses_are_filled_in_and_then_read_only(tmp_path: Path) -> None:
    text = """
    @one = private constant i64 31
    @two = private constant i64 37
    @table = internal constant [2 x i64*] [i64* @one, i64* @two]
    define i64** @place() nounwind {
      ret i64** getelementptr ([2 x i64*], [2 x i64*]* @table, i64 0, i64 0)
    }
    """
    library = loaded(tmp_path, FOUR, text)
    library.place.restype = ctypes.c_void_p
    place = library.place()
    table = (ctypes.POINTER(ctypes.c_int64) * 2).from_address(place)
    assert [pointer[0] for pointer in table] == [31, 37]
    spans = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    (rights,) = (
        words[1] for words in spans if int(words[0].split("-")[0], 16) <= place < int(words[0].split("-")[1], 16)
    )
    assert rights.startswith("r--")


@pytest.mark.parametrize(("modules", "said"), [
    ([FOUR, FOUR], "two objects have a.number"),
    (["@shared = external global i64\ndefine i64* @f() { ret i64* @shared }"], "relocation|address of shared"),
    (["@kept = global i64 3\ndefine i64* @f() { ret i64* @kept }"], "relocation"),
    (["@empty = internal global [9 x i64] zeroinitializer\ndefine i64* @f() "
      "{ ret i64* getelementptr ([9 x i64], [9 x i64]* @empty, i64 0, i64 0) }"], "section of the type 8"),
], ids=["twice", "data elsewhere", "variables of others", "variables"])  # fmt: skip
def test_what_kernels_have_not_is_refused(modules: list[str], said: str) -> None:
    with pytest.raises(LinkError, match=said):
        link([compiled(text) for text in modules])


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match="not for x86-64"):
        link([link([compiled(FOUR)])])


def test_objects_of_two_processors_are_refused() -> None:
    with pytest.raises(LinkError, match="different processors"):
        link([compiled(FOUR), compiled(CALLER, AARCH64)])
