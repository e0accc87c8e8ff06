"""A Kerberos KDC (MIT krb5) of a realm of its own on loopback, for tests and samples with GSSAPI.

with kdc(folder, "kafka/localhost", "shop") as realm:
    ...  # realm.java: options for Java; realm.keys has the keys of all principals
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from .broker import BrokerError, free_ports

REALM = "KAFKATAP.TEST"
_LOGIN = "com.sun.security.auth.module.Krb5LoginModule required"
_CONFIG = """[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
"""
_KDC = """[kdcdefaults]
 kdc_listen = ""
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
 }}
[logging]
 kdc = FILE:{folder}/kdc.log
"""


class Realm(NamedTuple):
    keys: Path
    java: str

    def login(self, principal: str) -> str:
        """The JAAS configuration of a principal."""
        return f'{_LOGIN} useKeyTab=true storeKey=true keyTab="{self.keys}" principal="{principal}@{REALM}";'


def missing_kdc() -> str:
    """The programs for a KDC that this machine lacks, as a sentence; "" where it lacks none."""
    if shutil.which("krb5kdc") and shutil.which("kdb5_util") and shutil.which("kadmin.local"):
        return ""
    return "needs a Kerberos KDC, and none is installed (Debian: apt-get install krb5-kdc krb5-admin-server)"


@contextmanager
def kdc(folder: Path, *principals: str) -> Iterator[Realm]:
    """Start a KDC with these principals, whose keys are random."""
    if why := missing_kdc():
        raise BrokerError(why)
    folder.mkdir(parents=True)
    port = free_ports(1)[0]
    config, keys = folder / "krb5.conf", folder / "keys"
    config.write_text(_CONFIG.format(realm=REALM, port=port))
    (folder / "kdc.conf").write_text(_KDC.format(realm=REALM, port=port, folder=folder))
    own = {**os.environ, "KRB5_CONFIG": str(config), "KRB5_KDC_PROFILE": str(folder / "kdc.conf")}
    master = os.urandom(16).hex()
    _run(["kdb5_util", "create", "-s", "-r", REALM, "-P", master], own)
    for principal in principals:
        _run(["kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}"], own)
        _run(["kadmin.local", "-r", REALM, "-q", f"ktadd -k {keys} {principal}"], own)
    process = subprocess.Popen(
        ["krb5kdc", "-n", "-r", REALM], env=own, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait(port, process)
        yield Realm(keys, f"-Djava.security.krb5.conf={config} -Dsun.security.krb5.disableReferrals=true")
    finally:
        process.terminate()
        process.wait(10)


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise BrokerError(f"{command[0]} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if process.poll() is not None:
            raise BrokerError(f"the KDC ended with {process.returncode}")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise BrokerError("the KDC did not listen within 20 s")
