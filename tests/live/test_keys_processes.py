"""`kafkatap keys` and processes: other users, containers, what is no JVM, and where secrets may go."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.running import kafkatap, on_terminal

from .running import Capturing, wait_for

pytest.importorskip("kafkatap_keys", reason="needs kafkatap-keys: pip install ./agent")
import kafkatap_keys
from kafkatap_keys.jvm import AttachError, Jvm
from kafkatap_keys.outlets import KeyFile, KeySocket
from kafkatap_keys.taking import _Folder

HAS_JAVA = shutil.which("java") is not None and shutil.which("javac") is not None
needs_java = pytest.mark.skipif(not HAS_JAVA, reason="runs Java (Debian: apt-get install default-jdk-headless)")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes the user, or makes namespaces: run as root")
NOBODY = 65_534
JAR = Path(kafkatap_keys.__path__[0]) / "agent.jar"
_SLEEPS = """\
public class Sleeps {
    public static void main(String[] arguments) throws Exception {
        System.out.println("ready");
        Thread.sleep(600_000);
    }
}
"""
LINE = b"CLIENT_RANDOM " + b"ab" * 32 + b" " + b"cd" * 48 + b"\n"


@pytest.fixture(scope="module")
def classes() -> Iterator[Path]:
    """A folder with a program that everybody can run."""
    with tempfile.TemporaryDirectory(prefix="kafkatap-test-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "Sleeps.java").write_text(_SLEEPS)
        subprocess.run(["javac", "-d", name, str(folder / "Sleeps.java")], check=True, timeout=120)
        yield folder


@contextmanager
def sleeping(classes: Path, before: Sequence[str] = (), options: Sequence[str] = ()) -> Iterator[int]:
    """A JVM; its process id. `before`: a command that runs it."""
    command = [*before, "java", "-Xmx32m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *options, "-cp", str(classes)]
    process = subprocess.Popen(
        [*command, "Sleeps"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield java_of(process.pid)
    finally:
        for pid in (java_of(process.pid), process.pid):
            if pid:
                os.kill(pid, signal.SIGKILL)
        process.wait(10)
        process.stdout.close()


def java_of(pid: int) -> int:
    """This process or one below it that runs java; 0."""
    try:
        if os.readlink(f"/proc/{pid}/exe").endswith("/java"):
            return pid
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    return next(filter(None, (java_of(int(child)) for child in below)), 0)


def take(pid: int, *arguments: object) -> Capturing:
    return Capturing([sys.executable, "-m", "kafkatap", "keys", "--pid", str(pid), *map(str, arguments)])


@needs_java
@needs_root
@pytest.mark.parametrize("option", ["-o", "--socket"])
def test_root_becomes_the_user_of_the_jvm(classes: Path, tmp_path: Path, option: str) -> None:
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    with sleeping(classes, user) as pid, take(pid, "--duration", "60s", "--yes", option, tmp_path / "keys") as taking:
        wait_for(lambda: "open connections" in taking.err(), 30, taking.err)
        status = Path(f"/proc/{taking.process.pid}/status").read_text()
        fields = {name: value.split() for name, _, value in (line.partition(":") for line in status.splitlines())}
        assert fields["Uid"] == fields["Gid"] == [str(NOBODY)] * 4
        assert fields["CapPrm"] == fields["CapEff"] == ["0000000000000000"]
        made = (tmp_path / "keys").stat()
        assert (made.st_uid, stat.S_IMODE(made.st_mode)) == (0, 0o600)
        done = taking.end()
        assert not list(Path("/tmp").glob(f"kafkatap-keys-{taking.process.pid}-*"))
    assert done.code == 0, done.err
    assert "Secrets of 0 open and 0 new connections, 0 lines. The agent has ended." in done.err


@needs_java
@needs_root
def test_a_container(classes: Path, tmp_path: Path) -> None:
    """A JVM with files and process ids of its own sees neither this host's /tmp nor its packages."""
    own = tmp_path / "tmp"
    own.mkdir()
    script = f'mount -t tmpfs none {own} && cp -rp {classes} {own} && mount --move {own} /tmp && exec "$@"'
    before = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh"]
    with sleeping(classes, before) as pid, take(pid, "--duration", "1s", "--yes", "-o", tmp_path / "keys") as taking:
        done = taking.finish()
        assert not list(Path(f"/proc/{pid}/root/tmp").glob("kafkatap-keys-*"))
    assert done.code == 0, done.err
    assert "The agent has ended" in done.err


@needs_java
def test_a_jvm_that_ends_meanwhile(classes: Path, tmp_path: Path) -> None:
    with sleeping(classes) as pid, take(pid, "--yes", "-o", tmp_path / "keys") as taking:
        wait_for(lambda: "open connections" in taking.err(), 30, taking.err)
        os.kill(pid, signal.SIGKILL)
        done = taking.finish()
    assert done.code == 1
    assert "the JVM has ended" in done.err


@needs_java
def test_a_jvm_that_lets_nobody_attach(classes: Path, tmp_path: Path) -> None:
    options = ["-XX:+DisableAttachMechanism"]
    with sleeping(classes, options=options) as pid, take(pid, "--yes", "-o", tmp_path / "keys") as taking:
        done = taking.finish()
    assert done.code == 2
    assert "-XX:+DisableAttachMechanism" in done.err


@needs_java
def test_it_says_what_it_does_and_asks(classes: Path, tmp_path: Path) -> None:
    with sleeping(classes) as pid:
        done = kafkatap("keys", "--pid", str(pid), "-o", tmp_path / "keys")
        assert done.code == 2
        for words in ("Sleeps", "secrets", "Attach Listener", "Nothing was done: say --yes"):
            assert words in done.err
        with open(tmp_path / "typed", "w+b") as typed:
            code, shown = on_terminal("keys", "--pid", str(pid), "-o", tmp_path / "keys", stdin=typed)
        assert (code, "Nothing was done" in shown) == (2, True)
    assert not (tmp_path / "keys").exists()


def test_what_is_no_jvm(tmp_path: Path) -> None:
    done = kafkatap("keys", "--pid", str(os.getpid()), "--yes", "-o", tmp_path / "keys")
    assert (done.code, "is no JVM" in done.err) == (2, True)
    done = kafkatap("keys", "--pid", "4194305", "--yes", "-o", tmp_path / "keys")
    assert (done.code, "there is no process" in done.err) == (2, True)
    done = kafkatap("keys", "--pid", "1", "--peer", "10.0.0.0/99", "-o", tmp_path / "keys")
    assert (done.code, "is no address and no network" in done.err) == (2, True)


def test_a_key_log_is_continued_and_stays_private(tmp_path: Path) -> None:
    path = str(tmp_path / "keys.log")
    for _ in range(2):
        outlet = KeyFile(path)
        outlet.write(LINE)
        outlet.close()
    assert Path(path).read_bytes() == 2 * LINE
    os.chmod(path, 0o644)
    with pytest.raises(ValueError, match="others than you can read"):
        KeyFile(path)
    os.symlink(path, tmp_path / "link")
    with pytest.raises(OSError, match="symbolic links"):
        KeyFile(str(tmp_path / "link"))
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises((OSError, ValueError)):
        KeyFile(str(tmp_path / "pipe"))


def test_readers_of_a_socket_get_all_lines(tmp_path: Path) -> None:
    path = str(tmp_path / "keys.sock")
    outlet = KeySocket(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with pytest.raises(FileExistsError):
        KeySocket(path)
    selector = selectors.DefaultSelector()
    outlet.begin(selector)
    outlet.write(LINE)
    readers = [_reader(path, selector)]
    outlet.write(20_000 * LINE)  # more than the kernel keeps for a reader
    readers.append(_reader(path, selector))
    found = [b"", b""]
    end = time.monotonic() + 20
    while any(len(each) < 20_001 * len(LINE) for each in found) and time.monotonic() < end:
        for i, reader in enumerate(readers):
            try:
                found[i] += reader.recv(1 << 20)
            except BlockingIOError:
                outlet.write(b"")  # as often as lines come
    assert found == [20_001 * LINE] * 2
    readers[0].close()
    outlet.write(LINE)
    outlet.close()
    assert not os.path.exists(path)
    readers[1].close()
    selector.close()


def _reader(path: str, selector: selectors.BaseSelector) -> socket.socket:
    reader = socket.socket(socket.AF_UNIX)
    reader.connect(path)
    reader.setblocking(False)
    for key, _ in selector.select(5):
        key.data()
    return reader


def test_a_dead_socket_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    path = str(tmp_path / "keys.sock")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    KeySocket(path).close()
    Path(path).write_text("not a socket")
    with pytest.raises(FileExistsError, match="no socket"):
        KeySocket(path)


@contextmanager
def folder_with_pipe(jvm: Jvm) -> Iterator[_Folder]:
    folder = _Folder(jvm)
    try:
        yield folder
    finally:
        folder.close()


@needs_java
def test_the_agent_writes_to_nothing_that_another_user_may_have_made(classes: Path) -> None:
    """While the JVM was stopped, kafkatap may have given up, and another user may have taken its folder's name."""
    with sleeping(classes) as pid:
        jvm = Jvm(pid)
        for spoil in ("folder", "pipe"):
            with folder_with_pipe(jvm) as folder:
                path = Path(folder.seen)
                if spoil == "folder":
                    path.chmod(0o755)
                else:
                    (path / "pipe").unlink()
                    (path / "pipe").touch(0o600)
                with pytest.raises(AttachError):
                    jvm.load(str(JAR), f"{folder.seen} 60")
                assert not os.read(folder.reading, 100)
                assert spoil == "folder" or (path / "pipe").read_bytes() == b""


@needs_java
def test_a_pipe_that_nobody_reads_holds_nothing_up(classes: Path) -> None:
    """kafkatap was killed while the agent was loaded: the JVM goes on, and can be attached to again."""
    with sleeping(classes) as pid:
        jvm, folder = Jvm(pid), _Folder(Jvm(pid))
        os.close(folder.reading)
        folder.reading = os.open("/dev/null", os.O_RDONLY)
        jvm.load(str(JAR), f"{folder.seen} 60")
        wait_for(lambda: not Path(folder.seen).exists(), 20, lambda: "the agent has not ended")
        folder.close()
        with folder_with_pipe(jvm) as again:
            jvm.load(str(JAR), f"{again.seen} 60")
            os.set_blocking(again.reading, True)
            assert os.read(again.reading, 1000).startswith(b"# open 0")


@needs_java
def test_a_link_in_place_of_the_agent_is_not_followed(classes: Path, tmp_path: Path) -> None:
    """The root of a container may write to its /tmp at any moment."""
    kept = tmp_path / "kept"
    kept.write_text("kept")
    with sleeping(classes) as pid, folder_with_pipe(Jvm(pid)) as folder:
        (Path(folder.seen) / "agent.jar").symlink_to(kept)
        with pytest.raises(AttachError, match="File exists"):
            folder.write("agent.jar", b"classes")
    assert kept.read_text() == "kept"


@needs_java
def test_another_process_listens_in_place_of_the_jvm(classes: Path) -> None:
    with sleeping(classes) as pid, socket.socket(socket.AF_UNIX) as ours:
        path = f"/tmp/.java_pid{pid}"
        ours.bind(path)
        try:
            ours.listen()
            with pytest.raises(AttachError, match=f"is a socket of process {os.getpid()}, not of {pid}"):
                Jvm(pid).load(str(JAR), "none 60")
        finally:
            os.unlink(path)


@needs_java
def test_a_request_file_that_is_there_already_is_named(classes: Path) -> None:
    with sleeping(classes) as pid:
        path = Path(f"/tmp/.attach_pid{pid}")
        os.mkfifo(path)
        try:
            with pytest.raises(AttachError, match="is there already"):
                Jvm(pid).load(str(JAR), "none 60")
        finally:
            path.unlink()


def test_slow_readers_of_a_socket_lose_the_oldest_lines_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkatap_keys.outlets._KEPT", 100 * len(LINE))
    outlet, selector = KeySocket(str(tmp_path / "keys.sock")), selectors.DefaultSelector()
    outlet.begin(selector)
    reader = _reader(str(tmp_path / "keys.sock"), selector)
    lines = [b"CLIENT_RANDOM %064x %096x\n" % (number, number) for number in range(20_000)]
    for line in lines:
        outlet.write(line)
    late = _reader(str(tmp_path / "keys.sock"), selector)
    found = [b"", b""]
    for i, each in enumerate((reader, late)):
        end = time.monotonic() + 20
        while not found[i].endswith(lines[-1]) and time.monotonic() < end:
            try:
                found[i] += each.recv(1 << 20)
            except BlockingIOError:
                outlet.flush()
    of_reader = [line for line in found[0].splitlines(keepends=True) if line in set(lines)]
    assert of_reader[-100:] == lines[-100:]
    assert len(of_reader) >= len(found[0].splitlines()) - 2, "at most one line is cut"
    assert found[1].splitlines(keepends=True) == lines[-len(found[1].splitlines()) :]
    outlet.close()
    for each in (reader, late):
        each.close()
    selector.close()
