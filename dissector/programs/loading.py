"""Programs by profile: read from the cache, or compiled and kept there.

Programs are kept beside the compiled kernels, so that an ordinary start parses and compiles no layout. Those of a
folder of definitions are kept too, by a digest of its content.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kafkatap.kernels import store

from ..layouts.catalog import learn_names
from .program import KEYS, VERSIONS, Programs, layouts_of

if TYPE_CHECKING:
    from ..layouts.overlay import Definitions

#: Folders of definitions whose programs are kept; of the built-in layouts one set is.
FOLDERS_KEPT = 4


def open_definitions(folder: str | os.PathLike[str]) -> Definitions:
    """Read and check a folder of Kafka's .json definitions, and learn the names of the APIs that are new in it.

    OSError if it cannot be read, DefinitionError if it has no definitions, or a malformed one.
    """
    from ..layouts.overlay import read_folder  # few runs need it

    definitions = read_folder(folder)
    load_programs("summary", definitions)
    return definitions


def load_programs(name: str, definitions: Definitions | None = None) -> Programs:
    """The programs of a profile by its name ("summary"), for the built-in layouts or those of `definitions`.

    The names of APIs that only `definitions` know are learned. DefinitionError if a definition cannot be compiled.
    """
    if definitions is None:
        return _load(name, None)
    found = definitions.derived.get(f"programs {name}")
    if not isinstance(found, Programs):
        from ..layouts.definitions import DefinitionError

        try:
            found = definitions.derived[f"programs {name}"] = _load(name, definitions)
        except DefinitionError:
            raise
        except ValueError as error:
            raise DefinitionError(f"{definitions.folder}: {error}") from error
    learn_names(found.names)
    return found


def _load(name: str, definitions: Definitions | None) -> Programs:
    folder = store.open_folder(build=False)
    path = None
    if folder is not None:
        stem = f"programs-{name}" if definitions is None else f"definitions-{name}-{definitions.digest}"
        path = folder / f"{stem}-{_sources()}.npy"
    kept = None if path is None else _read(path, name, definitions)
    if kept is not None:
        return kept
    from .compiler import compile_programs  # programs from the cache need no compiler
    from .profiles import PROFILES

    compiled = compile_programs(layouts_of(definitions), PROFILES[name])
    programs = replace(compiled, definitions=definitions, names={} if definitions is None else definitions.names)
    if path is not None:
        _write(path, programs)
    return programs


def _sources() -> str:
    """Changes with the layouts and with this package's own sources (sizes and times of the files)."""
    here = Path(__file__).parent
    layouts, messages = here.parent / "layouts", here.parent / "messages"
    digest = hashlib.blake2b(digest_size=8)
    for folder, suffix in ((here, ".py"), (layouts, ".py"), (messages, ".kmsg")):
        with os.scandir(folder) as entries:
            for entry in sorted((e for e in entries if e.name.endswith(suffix)), key=lambda e: e.name):
                status = entry.stat()
                digest.update(f"{entry.name} {status.st_size} {status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


#: The kept form is one int32 array: these two, the lengths of the four parts, the parts. The last are names, as JSON.
_FORM = (0x6B746170, 2)


def _write(path: Path, programs: Programs) -> None:
    """Keep programs: written whole under another name, then renamed. A folder that cannot be written is left alone."""
    names = np.frombuffer(json.dumps(programs.names).encode(), np.uint8)
    parts = (programs.code, programs.index, programs.roles.astype(np.int32), names.astype(np.int32))
    whole = np.concatenate([np.array([*_FORM, *map(len, parts)], np.int32), *parts])
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix="programs-new-")
        try:
            with open(handle, "wb") as file:
                np.save(file, whole)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        ours, kept = ("programs", 1) if programs.definitions is None else ("definitions", FOLDERS_KEPT)
        others = path.parent.glob(f"{ours}-{programs.profile}-*.npy")
        newest = sorted((p for p in others if p != path), key=lambda p: p.stat().st_mtime_ns, reverse=True)
        for old in newest[kept - 1 :]:
            old.unlink(missing_ok=True)
    except OSError:
        return


def _read(path: Path, name: str, definitions: Definitions | None) -> Programs | None:
    """Programs kept before, or None where there are none or they are damaged."""
    try:
        whole = np.load(path, allow_pickle=False)
        if whole.dtype != np.int32 or whole.ndim != 1 or len(whole) < 6 or tuple(whole[:2].tolist()) != _FORM:
            return None
        sizes = whole[2:6]
        if (sizes < 0).any() or sizes[1] != 2 * KEYS * VERSIONS or len(whole) != 6 + int(sizes.sum()):
            return None
        code, index, roles, names = np.split(whole[6:], np.cumsum(sizes[:3]))
        known = {int(key): str(value) for key, value in json.loads(names.astype(np.uint8).tobytes()).items()}
    except (OSError, ValueError, EOFError, AttributeError):
        return None
    return Programs(
        code.copy(), index.copy(), roles.astype(np.uint8), profile=name, definitions=definitions, names=known
    )
