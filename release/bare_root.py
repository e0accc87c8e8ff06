"""Bare systems of Debian below a folder, made by debootstrap, in which a release is tried. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

#: Debian 12 has Python 3.11, 13 has 3.13.
SUITES = ("bookworm", "trixie", "testing")
#: What pip needs of a system.
PACKAGES = ("python3", "python3-venv", "ca-certificates")


def run(*command: str | Path) -> str:
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout


@contextmanager
def bare_root(suite: str, kept: Path | None = None, packages: Sequence[str] = PACKAGES) -> Iterator[Path]:
    """A fresh system of a suite with some packages, removed at the end. `kept`: a folder where a copy stays."""
    with tempfile.TemporaryDirectory(prefix=f"kafkatap-{suite}-", ignore_cleanup_errors=True) as folder:
        fresh = Path(folder, "root") if kept is None else kept / suite
        if not (fresh / "usr/share/doc").exists() or (fresh / "debootstrap").exists():
            fresh.parent.mkdir(parents=True, exist_ok=True)
            run("debootstrap", "--variant=minbase", f"--include={','.join(packages)}", suite, fresh)  # its own mirror
        root = Path(folder, "root")
        if fresh != root:
            run("cp", "-a", fresh, root)
        # As this machine reaches mirrors and PyPI.
        for path in ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"):
            if os.path.exists(path):
                target = root / path.lstrip("/")
                target.unlink(missing_ok=True)
                shutil.copyfile(path, target)
        yield root


def inside(root: Path, command: str) -> str:
    """Run a command of the shell in it, with its own processes and mounts; its output."""
    shell = ("env", "-i", "HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
             "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-ec")  # fmt: skip
    space = ("unshare", "--mount", "--pid", "--fork", f"--mount-proc={root}/proc", "chroot", root)
    return run(*space, *shell, f"{command}\n")


#: Commands as users call them, with what they must print.
TRIALS = (
    ("kafkatap --version", "kafkatap "),
    ("kafkatap report -v /tmp/sample.pcap.zst 2>&1", "kernels: compiled with the package"),
    ("kafkatap report --json /tmp/sample.pcap.zst", '"schema_version"'),
    ("kafkatap show -n 3 /tmp/sample.pcap.zst", "Fetch v18"),
    ("kafkatap records -n 3 /tmp/sample.pcap.zst", "__cluster_metadata-0@1898"),
    (
        "kafkatap report --html /tmp/page.html /tmp/sample.pcap.zst >/dev/null; head -c 15 /tmp/page.html",
        "<!doctype html>",
    ),
    ("kafkatap doctor /tmp/sample.pcap.zst || test $? = 3", "evidence: "),
    ("kafkatap live --interface lo --plain --duration 2s", "requests"),
)


def smoke_test(suite: str, wheel: Path, extras: Sequence[str], sample: Path, kept: Path | None = None) -> str:
    """Install a wheel there as users do, and try it; what was tried, in lines."""
    with bare_root(suite, kept) as root:
        shutil.copy(wheel, root / "tmp")
        install = f"/opt/kafkatap/bin/pip install -q '/tmp/{wheel.name}[{','.join(extras)}]'"
        inside(root, f"python3 -m venv /opt/kafkatap && {install} && ln -s /opt/kafkatap/bin/kafkatap /usr/local/bin/")
        return try_it(root, sample)


def try_it(root: Path, sample: Path) -> str:
    """Try a system's `kafkatap`; what was tried, in lines. AssertionError if it does not say what it must."""
    shutil.copy(sample, root / "tmp/sample.pcap.zst")
    said = [inside(root, "python3 --version").strip()]
    for command, wanted in TRIALS:
        output = inside(root, command)
        assert wanted.lower() in output.lower(), f"{command}\n{output}"
        said.append(command)
    return "\n".join(f"   {line}" for line in said)
