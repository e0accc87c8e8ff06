"""The scripts that record samples/tls run, and their captures stay small."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.openssl import missing
from tests.support.recording import cannot_record

from .real_endpoints import FOLDER

#: Files that each script makes, and the bytes that they have together at most.
MADE = {
    "matrix": (("matrix.keys.log", "matrix.pcap.zst", "matrix.truth.json"), 1_200_000),
    "broker": (
        ("broker.keys.log", "broker.pcap.zst", "broker.python.keys.log", "broker.request.log.zst", "broker.truth.json"),
        400_000,
    ),
    "failures": (("failures.keys.log", "failures.pcap.zst", "failures.truth.json"), 50_000),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MADE)
def test_scripts_record(name: str, tmp_path: Path) -> None:
    tools = [tool for tool in ("ip", "ethtool", "openssl") if shutil.which(tool) is None]
    if why := cannot_record() or missing() or (f"needs {', '.join(tools)}" if tools else ""):
        pytest.skip(why)
    command = [sys.executable, str(FOLDER / f"make_{name}.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(MADE[name][0])
    assert all(path.stat().st_size > 0 for path in tmp_path.iterdir())


@pytest.mark.parametrize("name", MADE)
def test_files_are_small(name: str) -> None:
    names, most = MADE[name]
    assert 0 < sum((FOLDER / each).stat().st_size for each in names) < most


def test_the_preloaded_library_writes_a_key_log(tmp_path: Path) -> None:
    """Both ends of a handshake in a process with Python's ssl, whose OpenSSL is loaded at run time."""
    if shutil.which("cc") is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler and Linux")
    if missing() or not ssl.OPENSSL_VERSION.startswith("OpenSSL 3"):
        pytest.skip("needs OpenSSL 3 as a shared library")
    from tests.support.authority import Authority

    library, keys = tmp_path / "openssl_keylog.so", tmp_path / "keys.log"
    source = str(FOLDER / "openssl_keylog.c")
    subprocess.run(["cc", "-Wall", "-shared", "-fPIC", "-o", str(library), source, "-ldl"], check=True, timeout=60)
    authority = Authority(tmp_path)
    own = authority.issue("broker", names=("localhost",))
    program = (
        "import ssl, sys\n"
        "server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)\n"
        "server.load_cert_chain(sys.argv[1]); client.load_verify_locations(sys.argv[2])\n"
        "a, b = ssl.MemoryBIO(), ssl.MemoryBIO()\n"
        "ends = [client.wrap_bio(a, b, server_hostname='localhost'), server.wrap_bio(b, a, server_side=True)]\n"
        "for end in ends * 3:\n"
        "    try: end.do_handshake()\n"
        "    except ssl.SSLWantReadError: pass\n"
        "print(ends[0].version())\n"
    )
    words = [sys.executable, "-c", program, str(own), str(authority.certificate)]
    environment = {**os.environ, "LD_PRELOAD": str(library), "SSLKEYLOGFILE": str(keys)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "TLSv1.3"
    lines = [line.split() for line in keys.read_text().splitlines()]
    assert {"CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"} <= {words[0] for words in lines}
    assert len({words[1] for words in lines}) == 1
    assert keys.stat().st_mode & 0o777 == 0o600
