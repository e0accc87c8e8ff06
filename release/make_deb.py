#!/usr/bin/env python3
"""Make a package of Debian of a wheel: python release/make_deb.py WHEEL --suite bookworm --out DIR. Needs root.

A virtual environment is made in a bare system of the suite, for its Python, at the place where the package has it:
/usr/lib/kafkatap. Manual pages, completion scripts and the systemd unit go where Debian has them. The package is built,
checked by lintian, and with --try installed, upgraded and purged in another bare system.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import third_parties
from bare_root import bare_root, inside, run, try_it

ROOT = Path(__file__).resolve().parents[1]
HOME = "usr/lib/kafkatap"
EXTRAS = "live,otlp"
#: By suite: what versions of the package end in, its Python and the one that it must be older than, libpcap's package.
SUITES = {
    "bookworm": ("deb12", "3.11", "3.12", "libpcap0.8"),
    "trixie": ("deb13", "3.13", "3.14", "libpcap0.8t64"),
}
UNIT = ROOT / "docs/live/kafkatap.service"
#: What the package's unit has in place of lines of that unit.
UNIT_CHANGES = {"/opt/kafkatap/bin/kafkatap": "/usr/bin/kafkatap", "DynamicUser=yes": "User=kafkatap\nGroup=kafkatap",
                "Copy to /etc/systemd/system/, adapt ExecStart, then:": "To change ExecStart: systemctl edit --full "
                "kafkatap. Then:"}  # fmt: skip
MAINTAINER = "The kafkatap authors <kafkatap@localhost>"
#: Of the extras, what Linux does not need. Its licence (GPL) is for another day.
LEFT_OUT = "scapy"
CONTROL = """\
Package: kafkatap
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: adduser, libc6 (>= 2.34), {pcap}, python3 (>= {python}), python3 (<< {below})
Suggests: prometheus, systemd
Section: net
Priority: optional
Description: latency, throttling and errors of Apache Kafka, from captured packets
 kafkatap reads Kafka's traffic from packet captures or from interfaces of this
 host, decodes it, and reports who is slow, who is throttled, what fails, and
 whether it is the network, the broker or the client. No change to clients or
 brokers is needed.
 .
 The service exports metrics for Prometheus. It is neither enabled nor started
 by the installation.
"""
POSTINST = """\
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    if ! getent passwd kafkatap >/dev/null; then
        adduser --system --group --quiet --home /var/lib/kafkatap --no-create-home --gecos 'kafkatap live' kafkatap
    fi
    py3compile -q -p kafkatap /usr/lib/kafkatap
    if [ -d /run/systemd/system ]; then
        systemctl --system daemon-reload || true
        [ -z "$2" ] || deb-systemd-invoke try-restart kafkatap.service || true
    fi
fi
"""
PRERM = """\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    deb-systemd-invoke stop kafkatap.service || true
fi
py3clean -p kafkatap
"""
POSTRM = """\
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload || true
fi
if [ "$1" = purge ]; then
    rm -rf /var/lib/kafkatap /var/cache/kafkatap
    if command -v deluser >/dev/null; then
        deluser --quiet --system kafkatap || true
    fi
fi
"""
OVERRIDES = """\
# The libraries in wheels of PyPI are those that their authors built, with their own copies of others.
kafkatap: embedded-library
kafkatap: custom-library-search-path
kafkatap: unstripped-binary-or-object
kafkatap: shared-library-lacks-prerequisites
kafkatap: hardening-no-relro
kafkatap: library-not-linked-against-libc
# No address is published yet: --maintainer names one.
kafkatap: bogus-mail-host
kafkatap: bogus-mail-host-in-debian-changelog
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="release/make_deb.py", description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--suite", choices=SUITES, default="bookworm", help="the Debian that it is for (bookworm)")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder for it (dist)")
    parser.add_argument("--roots", type=Path, help="keep bare systems of Debian in this folder for later runs")
    parser.add_argument("--constraints", type=Path, help="a file with the versions of other packages, for pip")
    parser.add_argument("--maintainer", default=MAINTAINER, help="'NAME <ADDRESS>'")
    parser.add_argument("--try", action="store_true", dest="is_tried", help="install, upgrade and purge it")
    options = parser.parse_args()
    try:
        package = make_deb(options.wheel, options.suite, options.out, options.roots, options.constraints,
                           options.maintainer)  # fmt: skip
        print(f"{package}: {package.stat().st_size / 1e6:.1f} MB")
        check(package)
        if options.is_tried:
            print(try_deb(package, options.suite, options.roots))
    except subprocess.CalledProcessError as error:
        print(f"{error}\n{error.stdout}{error.stderr}", file=sys.stderr)
        return 1
    return 0


def release_time() -> int:
    """SOURCE_DATE_EPOCH, else the time of the commit: s since the epoch."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or run("git", "-C", ROOT, "log", "-1", "--format=%ct"))


def make_deb(
    wheel: Path, suite: str, out: Path, roots: Path | None, constraints: Path | None, maintainer: str = MAINTAINER
) -> Path:
    """Make the package in the folder `out`, and return its path."""
    suffix, python, below, pcap = SUITES[suite]
    version = f"{wheel.name.split('-')[1]}-1~{suffix}"
    architecture = run("dpkg", "--print-architecture").strip()
    epoch = release_time()
    with tempfile.TemporaryDirectory(prefix="kafkatap-deb-") as folder:
        tree = Path(folder, "tree")
        with bare_root(suite, roots) as root:
            install(root, wheel, constraints)
            shutil.copytree(root / HOME, tree / HOME, symlinks=True)
        (site,) = (tree / HOME).glob("lib/python*/site-packages")
        place(tree, suite, version, site, epoch, maintainer)
        size = int(run("du", "-sk", "--apparent-size", tree).split()[0])
        control = CONTROL.format(
            version=version, architecture=architecture, maintainer=maintainer, size=size, pcap=pcap, python=python,
            below=below,
        )  # fmt: skip
        for name, text in {"control": control, "postinst": POSTINST, "prerm": PRERM, "postrm": POSTRM}.items():
            write(tree / "DEBIAN" / name, text, 0o644 if name == "control" else 0o755)
        with_times(tree, epoch)
        out.mkdir(parents=True, exist_ok=True)
        package = out / f"kafkatap_{version}_{architecture}.deb"
        run("env", f"SOURCE_DATE_EPOCH={epoch}", "dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, package)
        return package


def install(root: Path, wheel: Path, constraints: Path | None) -> None:
    """Install a wheel into an environment at its place in a system. It has no pip: another one installs."""
    shutil.copy(wheel, root / "tmp")
    pinned = ""
    if constraints is not None:
        shutil.copy(constraints, root / "tmp/constraints.txt")
        pinned = "-c /tmp/constraints.txt"
    inside(
        root,
        f"""
        python3 -m venv /opt/pip
        python3 -m venv --without-pip /{HOME}
        pip="/opt/pip/bin/pip --python /{HOME}/bin/python"
        $pip install -q --no-compile --only-binary :all: {pinned} '/tmp/{wheel.name}[{EXTRAS}]'
        $pip uninstall -qy {LEFT_OUT}
    """,
    )


def place(tree: Path, suite: str, version: str, site: Path, epoch: int, maintainer: str) -> None:
    """Put all files where Debian has them. `site`: the folder of the environment's packages."""
    home = tree / HOME
    share = tree / "usr/share"
    document = share / "doc/kafkatap"
    for folder in ("man/man1", "bash-completion/completions", "fish/vendor_completions.d"):
        (share / folder).mkdir(parents=True)
        for path in (home / "share" / folder).iterdir():
            if path.name.startswith("kafkatap"):
                path.rename(share / folder / path.name)
    (share / "zsh/vendor-completions").mkdir(parents=True)
    (home / "share/zsh/site-functions/_kafkatap").rename(share / "zsh/vendor-completions/_kafkatap")
    shutil.rmtree(home / "share")
    for page in list((share / "man/man1").iterdir()):
        write_gz(page.with_name(f"{page.name}.gz"), page.read_bytes())
        page.unlink()
    for path in (home / "bin").iterdir():  # what activates an environment, and other packages' commands
        if not path.name.startswith(("kafkatap", "python")):
            path.unlink()
    for path in [*site.glob("*/direct_url.json"), *home.glob("lib64"), *home.glob(".gitignore")]:
        path.unlink()
    for path in home.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent == home / "bin" else 0o644)
    (tree / "usr/bin").mkdir()
    for name in ("kafkatap", "kafkatap-extcap"):
        (tree / "usr/bin" / name).symlink_to(f"../lib/kafkatap/bin/{name}")
    write(tree / "usr/lib/systemd/system/kafkatap.service", unit())
    write(share / "lintian/overrides/kafkatap", OVERRIDES)
    day = run("date", "-u", "-R", "-d", f"@{epoch}").strip()
    changes = f"kafkatap ({version}) {suite}; urgency=medium\n\n  * See changelog.gz.\n\n -- {maintainer}  {day}\n"
    write_gz(document / "changelog.Debian.gz", changes.encode())
    write_gz(document / "changelog.gz", (ROOT / "CHANGELOG.md").read_bytes())
    own = "kafkatap: Apache-2.0, see /usr/share/common-licenses/Apache-2.0\nCopyright: the kafkatap authors\n\n"
    found = third_parties.others(site)
    listed = "".join(f"{each.name} {each.version}: {third_parties.licence(each)}\n" for each in found)
    texts = "The other packages below /usr/lib/kafkatap, with texts in third-party-licences.gz:\n\n"
    write(document / "copyright", f"{own}{texts}{listed}")
    write_gz(document / "third-party-licences.gz", "\n".join(third_parties.licences(found)).encode())


def unit() -> str:
    """The systemd unit of the package: that of the documents, with a user that the package makes."""
    text = UNIT.read_text(encoding="utf-8")
    for old, new in UNIT_CHANGES.items():
        if text.count(old) != 1:
            raise ValueError(f"{UNIT} does not have once: {old}")
        text = text.replace(old, new)
    return text


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def write_gz(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, 9, mtime=0))


def with_times(tree: Path, epoch: int) -> None:
    """Set the time of all files, and rights of folders: packages of the same files are the same."""
    for path in (tree, *tree.rglob("*")):
        os.utime(path, (epoch, epoch), follow_symlinks=False)
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)


def check(package: Path) -> None:
    """Print what lintian says. CalledProcessError where that is an error."""
    done = subprocess.run(["lintian", "--fail-on", "error", "--allow-root", package], capture_output=True, text=True,
                          check=False)  # fmt: skip
    print(done.stdout)
    done.check_returncode()


#: What holds after an installation, an upgrade, and a purge.
INSTALLED = """
getent passwd kafkatap >/dev/null
test -f /usr/lib/systemd/system/kafkatap.service
test -f /usr/share/man/man1/kafkatap.1.gz
test -n "$(find /usr/lib/kafkatap -name '*.pyc')"
"""
PURGED = """
! test -e /usr/lib/kafkatap
! test -e /usr/bin/kafkatap
! test -e /var/lib/kafkatap
! getent passwd kafkatap
"""
#: The service's user, with the one capability that its unit grants.
AS_SERVICE = """
setpriv --reuid kafkatap --regid kafkatap --clear-groups --no-new-privs --inh-caps=-all,+net_raw \\
    --ambient-caps=-all,+net_raw --bounding-set=-all,+net_raw \\
    kafkatap live --interface any --plain --no-report --duration 2s "tcp port 9092 or icmp or icmp6"
"""


def has_capability(path: Path) -> bool:
    return "security.capability" in os.listxattr(path, follow_symlinks=False)


def try_deb(package: Path, suite: str, roots: Path | None) -> str:
    """Install, upgrade and purge a package in a bare system; what was tried, in lines."""
    with bare_root(suite, roots) as root, tempfile.TemporaryDirectory() as folder:
        shutil.copy(package, root / "tmp/first.deb")
        tree, newer = Path(folder, "tree"), root / "tmp/newer.deb"
        run("dpkg-deb", "--raw-extract", package, tree)
        control = tree / "DEBIAN/control"
        control.write_text(control.read_text().replace("-1~", "-2~", 1))
        (tree / HOME / "bin/newer").write_text("")
        run("dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, newer)
        inside(root, "apt-get update -q && apt-get install -qy --no-install-recommends /tmp/first.deb")
        said = [try_it(root, ROOT / "samples/apache-4.3.pcap.zst")]
        inside(root, INSTALLED)
        inside(root, AS_SERVICE)
        said.append("   live capture as kafkatap, with CAP_NET_RAW alone")
        with_rights = [path for path in (root / HOME).rglob("*") if has_capability(path)]
        assert not with_rights, f"files with capabilities: {with_rights}"
        inside(root, "mkdir -p /var/lib/kafkatap && chown kafkatap /var/lib/kafkatap && touch /var/lib/kafkatap/kept")
        inside(root, "apt-get install -qy /tmp/newer.deb; test -e /usr/lib/kafkatap/bin/newer; kafkatap --version")
        inside(root, f"{INSTALLED}\ntest -e /var/lib/kafkatap/kept")
        said.append("   upgraded")
        inside(root, "apt-get install -qy --allow-downgrades /tmp/first.deb; test ! -e /usr/lib/kafkatap/bin/newer")
        inside(root, "apt-get remove -qy kafkatap; test ! -e /usr/bin/kafkatap; test -e /var/lib/kafkatap/kept")
        said.append("   removed")
        inside(root, f"dpkg --purge kafkatap\n{PURGED}")
        return "\n".join([*said, "   purged"])


if __name__ == "__main__":
    sys.exit(main())
