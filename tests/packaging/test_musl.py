"""The compiled kernels in a program of musl, Alpine's C library: Debian's musl-tools make one.

Where those are installed, the Java library snappy takes the machine for one of musl, and Spark's tests fail. So
`./check` does not install them.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kafkatap.kernels import library

PROGRAM = """
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
typedef int64_t (*counting)(void *, int64_t, int64_t, void *, int64_t);
int main(int count, char **words) {
  void *opened = dlopen(words[1], RTLD_NOW);
  if (!opened) { puts(dlerror()); return 1; }
  int (*check)(void) = (int (*)(void))dlsym(opened, "has_processor");
  counting waiting = (counting)dlsym(opened, "kafkatap.reassembly.afpacket.count_waiting");
  static uint8_t ring[8192];  /* two blocks, the first one ours, with 3 packets in 77 bytes */
  static int64_t state[7];
  ring[8] = 1; ring[12] = 3; ring[20] = 77;
  int64_t found = waiting(ring, 8192, 4096, state, 1);
  printf("%d %ld %ld %ld\\n", check(), (long)found, (long)state[5], (long)state[6]);
  return 0;
}
"""


def test_the_library_loads_and_runs(tmp_path: Path) -> None:
    if shutil.which("musl-gcc") is None:
        pytest.skip("needs musl-gcc (Debian: musl-tools)")
    if library.open_library() is None:
        pytest.skip(f"needs the library: {library.reason()}")
    (tmp_path / "program.c").write_text(PROGRAM)
    subprocess.run(["musl-gcc", "-o", "program", "program.c"], cwd=tmp_path, check=True)
    path = Path(library.FOLDER, library.LIBRARY)
    done = subprocess.run([tmp_path / "program", path], capture_output=True, text=True, check=True)
    assert done.stdout == "1 1 77 3\n"
