"""Programs by profile. An ordinary start parses and compiles no layout. The programs are those of

1. a file that was made with the package (`make_programs`), if no layout has changed since;
2. a file in the user's cache folder (`kept_programs`);
3. the compiler, and then they are kept.

Those of definitions are kept by a digest of their content.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from kafkatap.kernels import store
from kafkatap.kernels.source_list import sources_fit

from ..layouts.catalog import learn_names
from .program import Programs, layouts_of
from .program_files import read_programs

if TYPE_CHECKING:
    from ..layouts.overlay import Definitions

#: In the folder of what was made with the package: the programs of a profile, and the list of their sources.
MADE_AHEAD, SOURCES = "{}.programs", "programs.txt"


def open_definitions(*paths: str | os.PathLike[str]) -> Definitions:
    """Read and check Kafka's .json definitions at these paths (folders, archives, files), and learn the names of the
    APIs that are new in them. A later path goes before an earlier one if both have a version of a message.

    OSError if one cannot be read, DefinitionError if it has no definitions, or a malformed one.
    """
    from ..layouts.overlay import read_definitions  # few runs need it

    definitions = read_definitions(*paths)
    load_programs("summary", definitions)
    return definitions


def load_programs(name: str, definitions: Definitions | None = None) -> Programs:
    """The programs of a profile by its name ("summary"), for the built-in layouts or those of `definitions`.

    The names of APIs that only `definitions` know are learned. DefinitionError if a definition cannot be compiled.
    """
    if definitions is None:
        return _made_ahead(name) or _kept_or_compiled(name, None)
    found = definitions.derived.get(f"programs {name}")
    if not isinstance(found, Programs):
        from ..layouts.definition_files import DefinitionError

        try:
            found = definitions.derived[f"programs {name}"] = _kept_or_compiled(name, definitions)
        except DefinitionError:
            raise
        except ValueError as error:
            raise DefinitionError(f"{definitions.paths}: {error!s:.300}") from error
    learn_names(found.names)
    return found


def _made_ahead(name: str) -> Programs | None:
    folder = store.made_ahead()
    if folder is None or not _is_made_of_these_layouts(folder):
        return None
    return read_programs(os.path.join(folder, MADE_AHEAD.format(name)), name)


@cache
def _is_made_of_these_layouts(folder: str) -> bool:
    return sources_fit(os.path.join(folder, SOURCES))


def _kept_or_compiled(name: str, definitions: Definitions | None) -> Programs:
    from .kept_programs import keep_programs, path_of

    path = path_of(name, None if definitions is None else definitions.digest)
    kept = None if path is None else read_programs(str(path), name, definitions)
    if kept is not None:
        return kept
    from .compiler import compile_programs
    from .profiles import PROFILES

    programs = compile_programs(layouts_of(definitions), PROFILES[name])
    if definitions is not None:
        programs.definitions, programs.names = definitions, definitions.names
    if path is not None:
        keep_programs(path, programs)
    return programs
