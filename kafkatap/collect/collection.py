"""A span of time from many hosts at once: a capture for each."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from kafkatap.live.recording.kept_names import WITH_SECRETS, names_between
from kafkatap.reports import units

from ..output_file import OutputFile, UnnamedFile
from .far_side import Clock, FarSide, HostError
from .places import Place
from .span import Written, write_span

#: Hosts that are asked at the same time.
AT_ONCE = 32


@dataclass(frozen=True)
class Wanted:
    """What is collected. `begin`, `end`: ns since the epoch, by this host's clock. `folder`: where hosts keep packets.
    `most`: bytes of each host. `sudo`: as of `FarSide`."""

    begin: int
    end: int
    folder: str
    most: int
    sudo: bool = False


@dataclass(frozen=True)
class Collected:
    """What came of one host. `path`: the capture; None if there is none, as `reason` says. `trouble`: what is missing
    of it. `has_secrets`: its packets are not without tokens of SASL."""

    place: Place
    path: str | None
    clock: Clock | None = None
    written: Written | None = None
    reason: str = ""
    trouble: str = ""
    has_secrets: bool = False


def file_names(places: Iterable[Place]) -> Iterator[str]:
    """A name for the capture of each host."""
    taken: set[str] = set()
    for place in places:
        name, number = place.file_name, 1
        while name in taken:
            number += 1
            name = f"{place.file_name}-{number}"
        taken.add(name)
        yield f"{name}.pcapng"


def collect(
    places: Sequence[Place], wanted: Wanted, folder: Path, notify: Callable[[Collected], None], overwrite: bool = False
) -> list[Collected]:
    """Write a capture for each host to a folder, which is there. `notify` gets each as it is complete."""
    pool = ThreadPoolExecutor(min(AT_ONCE, len(places)))
    try:
        paths = [str(folder / name) for name in file_names(places)]
        tasks = [pool.submit(_collect_one, *each, wanted, overwrite) for each in zip(places, paths, strict=True)]
        for task in as_completed(tasks):
            notify(task.result())
        return [task.result() for task in tasks]
    finally:
        pool.shutdown(cancel_futures=True)


def _collect_one(place: Place, path: str, wanted: Wanted, overwrite: bool) -> Collected:
    clock = None
    try:
        with UnnamedFile(os.path.dirname(path)) as raw:
            with FarSide(place, wanted.folder, wanted.sudo) as host:
                host.greet()
                clock = host.clock()
                ahead = clock.correction
                names = names_between(host.names(), wanted.begin + ahead, wanted.end + ahead)
                if not names:
                    return Collected(place, None, clock, reason="it has no packets of that time")
                trouble = host.fetch(names, raw.file.write, wanted.most)
            raw.publish()
            return _written(place, path, wanted, clock, raw, trouble, overwrite)
    except HostError as error:
        return Collected(place, None, clock, reason=str(error))
    except OSError as error:
        return Collected(place, None, clock, reason=f"{error.strerror or error}: {error.filename or path}")
    except ValueError as error:
        return Collected(place, None, clock, reason=str(error))


def _written(
    place: Place, path: str, wanted: Wanted, clock: Clock, raw: UnnamedFile, trouble: str, overwrite: bool
) -> Collected:
    """The packets of the span out of what a host has sent."""
    with OutputFile(path, overwrite=overwrite) as made:
        comment = f"collected from {units.safe(place.name)}: {clock_words(clock)}"
        written = write_span(
            raw.path, made.file, wanted.begin, wanted.end, clock.correction, units.safe(place.name), comment
        )
        if not written.packets:
            return Collected(place, None, clock, reason=trouble or written.damage or "it has no packets of that time")
        made.publish()
    return Collected(place, path, clock, written, trouble=trouble or written.damage, has_secrets=_has_secrets(raw.path))


def _has_secrets(path: str) -> bool:
    """Whether one of the files that a host has sent says that it has tokens of SASL."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(WITH_SECRETS.encode()) >= 0


def clock_words(clock: Clock) -> str:
    """What a line says of a clock."""
    error = f"give or take {units.duration(clock.error)}"
    if not clock.correction:
        return f"its clock is as ours, {error}"
    direction = "ahead" if clock.ahead > 0 else "behind"
    return f"its clock is {units.duration(abs(clock.ahead))} {direction}, {error}; times are corrected"
