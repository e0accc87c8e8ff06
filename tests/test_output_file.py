"""A named output appears whole or not at all, as private as what it replaces, and never through a link."""

from __future__ import annotations

import grp
import os
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkatap.output_file import OutputFile, OutputFiles, check_file, check_folder, check_output, write_whole
from kafkatap.replaceable import HTML
from tests.cli.running import KAFKATAP, ROOT, environment, kafkatap
from tests.live.running import wait_for

SAMPLE = "samples/apache-4.3.pcap.zst"
QUICK = ("--sections", "timeline")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


# ---------------------------------------------------------------- permissions and owners


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o400])
def test_a_file_keeps_the_permissions_of_the_one_it_replaces(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("before")
    path.chmod(mode)
    write_whole(str(path), "after", overwrite=True)
    assert (path.read_text(), mode_of(path)) == ("after", mode)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_a_new_file_has_the_permissions_of_the_umask(
    mask: int, mode: int, tmp_path: Path, umask: Callable[[int], int]
) -> None:
    umask(mask)
    write_whole(str(tmp_path / "page.html"), "new")
    assert mode_of(tmp_path / "page.html") == mode
    assert os.umask(mask) == mask


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of other users")
def test_a_file_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("before")
    os.chown(path, 4321, 8765)
    path.chmod(0o640)
    write_whole(str(path), "after", overwrite=True)
    assert (path.stat().st_uid, path.stat().st_gid, mode_of(path)) == (4321, 8765, 0o640)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of other users")
def test_permissions_of_a_group_are_not_for_another_one() -> None:
    """A user who is not in the file's group writes to a folder of his own."""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is closed to others
        os.chmod(folder, 0o777)
        path = Path(folder) / "page.html"
        path.write_text("before")
        os.chown(path, 0, grp.getgrnam("adm").gr_gid)
        path.chmod(0o660)
        child = os.fork()
        if not child:
            code = 1
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                write_whole(str(path), "after", overwrite=True)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert (path.read_text(), path.stat().st_uid, mode_of(path)) == ("after", 65534, 0o600)


@pytest.mark.parametrize("option", ["--html", "--csv", "--plots", "--parquet"])
def test_each_output_of_a_report(option: str, tmp_path: Path, umask: Callable[[int], int]) -> None:
    """New files follow the umask, and those of a second run the files that they replace."""
    umask(0o026)  # with `stdin`, a process of its own has it
    target = tmp_path / "out.html" if option == "--html" else tmp_path
    assert kafkatap("report", SAMPLE, *QUICK, option, target, stdin=b"").code == 0
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert {mode_of(path) for path in files} == {0o640}
    for path in files:
        path.write_bytes(b"")
        path.chmod(0o600)
    assert kafkatap("report", SAMPLE, *QUICK, option, target, stdin=b"").code == 0
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(files)
    assert {mode_of(path) for path in files} == {0o600}
    assert all(path.stat().st_size for path in files)


def test_extracts_and_records(tmp_path: Path) -> None:
    packets, rows = tmp_path / "out.pcapng", tmp_path / "rows.parquet"
    for path in (packets, rows):
        path.write_text("")
        path.chmod(0o640)
    assert kafkatap("extract", SAMPLE, "--api", "Metadata", "-o", packets).code == 0
    assert kafkatap("records", SAMPLE, "-o", rows).code in (0, 1)
    for path in (packets, rows):
        assert (mode_of(path), path.stat().st_size > 100) == (0o640, True)


# ---------------------------------------------------------------- links


def links(folder: Path) -> tuple[Path, Path]:
    """(A link, its target.)"""
    target, link = folder / "target", folder / "link.pcapng"
    target.write_text("mine")
    link.symlink_to("target")
    return link, target


def test_no_output_goes_through_a_link(tmp_path: Path) -> None:
    link, target = links(tmp_path)
    words = f"{link}: this is a symbolic link to {target}; name {target} itself, or remove the link"
    for command in (
        ("report", SAMPLE, "--html", link),
        ("compare", SAMPLE, SAMPLE, "--html", link),
        ("records", SAMPLE, "-o", link),
        ("extract", SAMPLE, "--api", "Metadata", "-o", link),
        ("extract", SAMPLE, "--api", "Metadata", "--anonymize", "-o", link),
    ):
        done = kafkatap(*command)
        assert (done.code, done.out, done.err) == (2, "", f"kafkatap: {words}\n")
    assert (target.read_text(), link.is_symlink(), len(os.listdir(tmp_path))) == ("mine", True, 2)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("report", SAMPLE, "--csv"), "latency.csv"),
        (("report", SAMPLE, "--plots"), "latency.png"),
        (("report", SAMPLE, "--parquet"), "results.parquet"),
        (("report", SAMPLE, "--parquet"), ".results.parquet.part"),
    ],
)
def test_no_file_of_a_folder_is_a_link(command: tuple[str, ...], name: str, tmp_path: Path) -> None:
    """Also a dangling one, which would make a file elsewhere. It is refused before the run."""
    folder, target = tmp_path / "out", tmp_path / "target"
    folder.mkdir()
    (folder / name).symlink_to(target)
    done = kafkatap(*command, folder)
    assert (done.code, done.out) == (2, "")
    assert "symbolic link" in done.err
    assert not target.exists()
    assert os.listdir(folder) == [name]


def test_a_link_that_appears_meanwhile_is_replaced(tmp_path: Path) -> None:
    path, target = tmp_path / "page.html", tmp_path / "target"
    target.write_text("mine")
    with OutputFile(str(path)) as made:
        made.file.write(b"page")
        path.symlink_to(target)
        made.publish()
    assert (path.is_symlink(), path.read_text(), target.read_text()) == (False, "page", "mine")


@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "pipe"])
def test_an_unfinished_file_that_somebody_else_made(kind: str, tmp_path: Path) -> None:
    """Nothing is emptied that only has the name of an unfinished file."""
    target, part = tmp_path / "target", tmp_path / ".a.parquet.part"
    target.write_text("mine")
    if kind == "symbolic link":
        part.symlink_to(target)
    elif kind == "hard link":
        part.hardlink_to(target)
    else:
        os.mkfifo(part)
    with pytest.raises(OSError, match=r"symbolic link|not an unfinished file"):
        OutputFiles(tmp_path, is_locked=True).add("a.parquet")
    assert target.read_text() == "mine"


# ---------------------------------------------------------------- devices and pipes


@pytest.mark.parametrize("command", ["report", "extract"])
def test_a_pipe_is_written_to(command: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    if command == "report":
        done = kafkatap("report", SAMPLE, *QUICK, "--html", pipe)
    else:
        done = kafkatap("extract", SAMPLE, "--api", "Metadata", "-o", pipe)
    reader.join()
    assert done.code == 0
    assert read[0].startswith(b"<!doctype html>" if command == "report" else b"\n\r\r\n")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_open_files_of_a_shell(tmp_path: Path) -> None:
    """`>(command)`, /dev/stdout that is a pipe, a file, or a file that is appended to, and another number."""
    program = " ".join(KAFKATAP)
    script = f"""
        set -e
        {program} report {SAMPLE} --sections timeline --html >(cat > {tmp_path}/page) > {tmp_path}/text
        echo before > {tmp_path}/both
        {program} report {SAMPLE} --sections timeline --html /dev/stdout >> {tmp_path}/both
        {program} extract {SAMPLE} --api Metadata -o /dev/stdout | cat > {tmp_path}/packets
        {program} extract {SAMPLE} --api Metadata -o /proc/self/fd/7 7> {tmp_path}/seven
    """
    subprocess.run(["bash", "-c", script], cwd=ROOT, env=environment(), check=True, capture_output=True, timeout=60)
    wait_for(lambda: (tmp_path / "page").read_text("utf-8").rstrip().endswith("</html>"), 20, lambda: "no page")
    page, text = ((tmp_path / name).read_text("utf-8") for name in ("page", "text"))
    assert page.startswith("<!doctype html>")
    assert text.startswith("all well") or "captured" in text
    assert (tmp_path / "both").read_text("utf-8") == f"before\n{text}{page}"
    assert (tmp_path / "packets").read_bytes() == (tmp_path / "seven").read_bytes()
    assert (tmp_path / "seven").stat().st_size > 1000


def test_a_link_to_a_device_counts_in_its_place_only(tmp_path: Path) -> None:
    write_whole("/dev/null", "x")
    link = tmp_path / "link"
    link.symlink_to("/dev/null")
    for check in (lambda: check_file("--html", str(link), HTML), lambda: write_whole(str(link), "x")):
        with pytest.raises(OSError, match="symbolic link to /dev/null"):
            check()
    with pytest.raises(OSError, match="symbolic link"):
        check_output(str(link), [])


# ---------------------------------------------------------------- runs that fail


@pytest.mark.parametrize("option", ["--html", "--csv", "--parquet"])
def test_a_run_that_fails_leaves_what_was_there(option: str, tmp_path: Path) -> None:
    """No capture can be read, so there is no report."""
    bad, folder = tmp_path / "bad.pcap", tmp_path / "out"
    bad.write_text("no capture")
    folder.mkdir()
    names = ["page.html", "latency.csv", "exchanges.parquet"]
    for name in names:
        (folder / name).write_text("mine")
        (folder / name).chmod(0o640)
    target = folder / "page.html" if option == "--html" else folder
    assert kafkatap("report", bad, option, target).code == 2
    assert sorted(os.listdir(folder)) == sorted(names)
    for name in names:
        assert ((folder / name).read_text(), mode_of(folder / name)) == ("mine", 0o640)


def test_files_of_a_folder_appear_together(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text("mine")
    with OutputFiles(tmp_path, overwrite=True) as files:
        files.add("a").write(b"new")
        files.drop("c")
        made = files.add("b")
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, made.fileno())
        os.close(full)
        made.write(b"new")
        with pytest.raises(OSError, match="No space left"):
            files.publish()
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]
    assert all((tmp_path / name).read_text() == "mine" for name in "abc")


def test_a_folder_is_checked_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder, words in ((tmp_path / "file", "is not a directory"), ("", "needs the name of a directory")):
        with pytest.raises(ValueError, match=words):
            check_folder("--csv", str(folder), (".csv",))
    with pytest.raises(OSError, match="created in this folder"):
        check_folder("--csv", "/proc", (".csv",))
    check_folder("--csv", str(tmp_path / "new"), (".csv",))
    assert (tmp_path / "new").is_dir()
