"""Records what other protocols' programs say to each other: `python record.py FOLDER [NAME...]`, as root on Debian.

Each recipe starts its servers in a network namespace of its own, lets a client talk to them, and keeps the first
packets with payload of each connection in FOLDER/NAME.pcap.zst. The programs have to be there (README.md names them);
one that is missing fails alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

#: Packets with payload, and bytes of payload, that are kept of each connection; connections that are kept.
PACKETS, BYTES, CONNECTIONS = 24, 6_000, 6
HERE = Path(__file__).resolve().parent
TALKS = f"{sys.executable} {HERE / 'talks.py'}"


@dataclass(frozen=True)
class Recipe:
    """Shell commands, run in an empty folder: `setup`, then `servers` beside each other, then `client`."""

    client: str
    servers: tuple[str, ...] = ()
    setup: str = "true"
    wait: float = 1.0  # seconds until the servers listen
    seconds: float = 20.0  # that the client may take


def talk(name: str, wait: float = 0.0) -> Recipe:
    """Both ends in Python, by a library of that protocol: `talks.py`."""
    return Recipe(f"{TALKS} {name}", wait=wait)


PG = "/usr/lib/postgresql/15/bin"
SLAPD = "include /etc/ldap/schema/core.schema\\nmodulepath /usr/lib/ldap\\nmoduleload back_mdb\\n"
RECIPES = {
    "amqp": Recipe(
        f"{TALKS} amqp",
        ("HOME=$PWD RABBITMQ_NODENAME=r@localhost RABBITMQ_MNESIA_BASE=$PWD RABBITMQ_LOG_BASE=$PWD "
         "RABBITMQ_ENABLED_PLUGINS_FILE=$PWD/plugins /usr/lib/rabbitmq/bin/rabbitmq-server",),
        wait=25, seconds=40,
    ),
    "beanstalkd": Recipe(f"{TALKS} beanstalkd", ("beanstalkd -l 127.0.0.1 -p 11300",)),
    "bgp": Recipe(
        "sleep 12",
        ("bird -f -c 1.conf -s 1.ctl", "bird -f -c 2.conf -s 2.ctl"),
        "ip addr add 10.9.0.1/32 dev lo; ip addr add 10.9.0.2/32 dev lo; for n in 1 2; do o=$((3-n)); "
        "echo \"router id 10.9.0.$n; protocol device {} protocol static { ipv4; route 10.$n.0.0/16 blackhole; } "
        "protocol bgp { local 10.9.0.$n as 6500$n; neighbor 10.9.0.$o as 6500$o; multihop; connect delay time 1; "
        "ipv4 { import all; export all; }; }\" > $n.conf; done",
    ),
    "dns": Recipe(
        f"{TALKS} dns", ("dnsmasq -k -p 5353 --no-resolv --no-hosts -A /example.com/10.1.2.3 -i lo -z",)
    ),
    "docker-registry": Recipe(
        "for p in '' _catalog a/tags/list; do curl -s localhost:5000/v2/$p; done",
        ("docker-registry serve config.yml",),
        "printf 'version: 0.1\\nstorage: {filesystem: {rootdirectory: data}}\\n"
        "http: {addr: \":5000\"}\\n' > config.yml",
        wait=2,
    ),
    "etcd-raft": Recipe(
        "ETCDCTL_API=3 etcdctl --endpoints=127.0.0.1:2379 put a b; "
        "ETCDCTL_API=3 etcdctl --endpoints=127.0.0.1:2379 get a",
        tuple(
            f"etcd --name e{n} --data-dir d{n} --listen-peer-urls http://127.0.0.1:{2380 + n} "
            f"--initial-advertise-peer-urls http://127.0.0.1:{2380 + n} "
            f"--listen-client-urls http://127.0.0.1:{port} --advertise-client-urls http://127.0.0.1:{port} "
            "--initial-cluster e1=http://127.0.0.1:2381,e2=http://127.0.0.1:2382"
            for n, port in ((1, 2379), (2, 2479))
        ),
        wait=5,
    ),
    "fastcgi": Recipe(
        "for n in 1 2; do SCRIPT_FILENAME=$PWD/a.php REQUEST_METHOD=GET SCRIPT_NAME=/a.php QUERY_STRING=x=$n "
        "cgi-fcgi -bind -connect 127.0.0.1:9000; done; curl -s localhost:8080/a.php",
        ("php-fpm8.2 -F -R -y fpm.conf", "nginx -p $PWD -c nginx.conf"),
        "echo '<?php echo \"hello\";' > a.php; "
        "printf '[global]\\nerror_log=e.log\\n[www]\\nuser=root\\ngroup=root\\nlisten=127.0.0.1:9000\\npm=static\\n"
        "pm.max_children=2\\n' > fpm.conf; "
        "echo \"daemon off; pid n.pid; error_log e2.log; events {} http { access_log off; server { listen 8080; "
        "root $PWD; location ~ php { include /etc/nginx/fastcgi_params; "
        "fastcgi_param SCRIPT_FILENAME $PWD/a.php; fastcgi_pass 127.0.0.1:9000; fastcgi_keep_conn on; "
        "} } }\" > nginx.conf; "
        "chmod 755 $PWD",
    ),
    "ftp": talk("ftp"),
    "gearman": Recipe(
        "(gearman -p 4730 -w -c 3 -f count -- wc -c & sleep 1; for n in 1 2 3; do gearman -p 4730 -f count "
        "'some work to do, and then some more'; done; gearadmin -p 4730 --status)",
        ("gearmand -u root -L 127.0.0.1 -p 4730 -l stderr",),
    ),
    "git": Recipe(
        "git clone -q git://localhost/r copy",
        ("git daemon --base-path=$PWD --export-all --reuseaddr",),
        "git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one",
    ),
    "http": Recipe(
        "curl -s localhost:8000/ -o /dev/null; curl -s -d 'a=b' localhost:8000/",
        (f"{sys.executable} -m http.server 8000",),
    ),
    "iperf3": Recipe("iperf3 -c localhost -n 1000 -l 100", ("iperf3 -s -1",)),
    "irc": Recipe(
        f"{TALKS} irc", ("ngircd -n -f n.conf",), "printf '[Global]\\nName=irc.example.net\\nInfo=x\\n' > n.conf"
    ),
    "jdwp": Recipe(
        "(sleep 2; echo threads; sleep 1; echo 'print 1+1'; sleep 1; echo classes | head -3; sleep 1; echo exit) | "
        "jdb -attach localhost:5005",
        ("java -agentlib:jdwp=transport=dt_socket,server=y,suspend=n,address=localhost:5005 S.java",),
        "echo 'class S { public static void main(String[] a) throws Exception { Thread.sleep(60000); } }' > S.java",
        wait=5,
    ),
    "kerberos": Recipe(
        "echo pw | kinit alice",
        ("krb5kdc -n -r EXAMPLE.ORG",),
        "printf '[libdefaults]\\ndefault_realm=EXAMPLE.ORG\\nudp_preference_limit=1\\ndns_lookup_kdc=false\\n"
        "[realms]\\nEXAMPLE.ORG={\\nkdc=127.0.0.1:8888\\n}\\n' > krb5.conf; "
        "printf \"[realms]\\nEXAMPLE.ORG={\\ndatabase_name=$PWD/principal\\nkey_stash_file=$PWD/stash\\n"
        "kdc_ports=8888\\nkdc_tcp_ports=8888\\n}\\n\" > kdc.conf; kdb5_util -r EXAMPLE.ORG create -s -P pw; "
        "kadmin.local -r EXAMPLE.ORG addprinc -pw pw alice",
    ),
    "ldap": Recipe(
        "ldapsearch -x -H ldap://127.0.0.1:3890 -b '' -s base '+'; "
        "ldapadd -x -H ldap://127.0.0.1:3890 -D cn=admin,dc=x -w pw -f x.ldif; "
        "ldapsearch -x -H ldap://127.0.0.1:3890 -b dc=x",
        ("slapd -h ldap://127.0.0.1:3890 -f s.conf -d 0",),
        f"mkdir db; printf \"{SLAPD}database mdb\\nsuffix dc=x\\nrootdn cn=admin,dc=x\\nrootpw pw\\n"
        "directory $PWD/db\\n\" > s.conf; "
        "printf 'dn: dc=x\\nobjectClass: dcObject\\nobjectClass: organization\\no: x\\ndc: x\\n' > x.ldif",
    ),
    "memcached": Recipe(f"{TALKS} memcached", ("memcached -l 127.0.0.1 -p 11211 -u root",)),
    "mqtt": Recipe(
        "(mosquitto_sub -p 1883 -t 'a/#' -C 3 & sleep 0.5; for n in 1 2 3; do mosquitto_pub -q 1 -p 1883 "
        "-t a/b -m hi$n; done; wait)",
        ("mosquitto -p 1883",),
    ),
    "mysql": Recipe(
        f"{TALKS} mysql",
        ("mariadbd --no-defaults --user=root --datadir=$PWD/d --socket=$PWD/s --port=3307 --skip-grant-tables "
         "--skip-networking=0",),
        "mariadb-install-db --no-defaults --user=root --datadir=$PWD/d --skip-test-db >/dev/null",
        wait=5,
    ),
    "nats": Recipe(f"{TALKS} nats", ("nats-server -p 4222",)),
    "nbd": Recipe(
        "nbdinfo nbd://localhost:10809; qemu-img info nbd://localhost:10809", ("nbdkit -f -p 10809 memory 1M",)
    ),
    "openflow": Recipe(f"{TALKS} openflow"),
    "ovsdb": Recipe(
        "ovsdb-client list-dbs tcp:127.0.0.1:6640; ovsdb-client dump tcp:127.0.0.1:6640",
        ("ovsdb-server --remote=ptcp:6640 --no-chdir --unixctl=$PWD/c --pidfile=$PWD/p $PWD/db",),
        "ovsdb-tool create db /usr/share/openvswitch/vswitch.ovsschema",
    ),
    "postgres": Recipe(
        "psql -h localhost -p 5544 -U postgres -c 'create table t(a int); insert into t values (1); select * from t' "
        "postgres",
        (f"su postgres -c '{PG}/postgres -D '$PWD'/d -p 5544 -k '$PWD",),
        f"chmod 777 $PWD; su postgres -c '{PG}/initdb -A trust -D '$PWD/d >/dev/null",
        wait=3,
    ),
    "redis": Recipe(
        "redis-cli -p 6380 set a b; redis-cli -p 6380 -3 hset h f v; redis-cli -p 6380 info server",
        ("redis-server --port 6380 --save ''",),
    ),
    "rfb": Recipe(f"{TALKS} rfb", ("Xtigervnc :7 -rfbport 5907 -SecurityTypes None -geometry 64x64",), wait=3),
    "rpcbind": Recipe("rpcinfo -T tcp 127.0.0.1; rpcinfo -p 127.0.0.1", ("rpcbind -f -w",)),
    "rsync": Recipe(
        "rsync -a rsync://localhost:8873/m/ copy",
        ("rsync --daemon --no-detach --port 8873 --config r.conf",),
        "mkdir m; echo hello > m/a; printf \"use chroot=no\\nuid=0\\ngid=0\\n[m]\\npath=$PWD/m\\n\" > r.conf",
    ),
    "rtmp": Recipe(
        "rtmpdump -q -r rtmp://localhost:1935/live/x -o out --stop 1",
        ("nginx -p $PWD -c nginx.conf",),
        "echo 'daemon off; pid n.pid; error_log e.log; load_module /usr/lib/nginx/modules/ngx_rtmp_module.so; "
        "events {} "
        "rtmp { server { listen 1935; application live { live on; } } }' > nginx.conf",
        seconds=5,
    ),
    "smb": Recipe(
        "smbclient -p 4450 -N -L localhost; smbclient -p 4450 -N //localhost/s -c 'ls; get a'",
        ("smbd -F --no-process-group -s s.conf",),
        "mkdir share run; echo hello > share/a; printf \"[global]\\nsmb ports=4450\\nmap to guest=bad user\\n"
        "private dir=$PWD/run\\nlock directory=$PWD/run\\nstate directory=$PWD/run\\ncache directory=$PWD/run\\n"
        "pid directory=$PWD/run\\nncalrpc dir=$PWD/run/n\\nlog file=$PWD/log\\nload printers=no\\n"
        "[s]\\npath=$PWD/share\\nguest ok=yes\\n\" > s.conf; chmod 755 $PWD share",
        wait=2,
    ),
    "ssh": Recipe(
        "ssh -p 2222 -i k -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null localhost true",
        ("/usr/sbin/sshd -D -e -p 2222 -h $PWD/k -o AuthorizedKeysFile=$PWD/k.pub -o StrictModes=no -o PidFile=none",),
        "mkdir -p /run/sshd; ssh-keygen -q -t ed25519 -N '' -f k",
    ),
    "svn": Recipe(
        "svn -q checkout svn://localhost:3690/ copy",
        ("svnserve -d --foreground -r $PWD/r --listen-port 3690",),
        "svnadmin create r",
    ),
    "zookeeper": Recipe(
        f"{TALKS} zookeeper",
        ("java -cp '/usr/share/java/*' org.apache.zookeeper.server.ZooKeeperServerMain 21810 $PWD",),
        wait=5, seconds=30,
    ),
    **{
        name: talk(name)
        for name in (
            "bolt-lone", "cassandra-lone", "clickhouse-lone", "dask", "dcerpc", "dicom", "echo", "firebird-lone",
            "grpc", "iec104", "mllp", "modbus", "mongodb-lone", "opcua", "oracle-lone", "pulsar-lone", "pyro",
            "pysyncobj-raft", "rpyc", "s7", "smpp", "smtp", "stomp-lone", "syslog", "tds-lone", "thrift", "websocket",
            "xmpp-lone", "zeromq",
        )
    },
}  # fmt: skip


def trimmed(data: bytes) -> bytes:
    """The first packets of the first connections of a capture."""
    kept = [data[:24]]
    seen: dict[frozenset[bytes], list[int]] = defaultdict(lambda: [0, 0])
    at = 24
    while at + 16 <= len(data):
        (captured,) = struct.unpack_from("<I", data, at + 8)
        record = data[at : at + 16 + captured]
        at += 16 + captured
        frame = record[16:]
        ip = 14 + (frame[14] & 15) * 4 if frame[14] >> 4 == 4 else 54
        total = int.from_bytes(frame[16:18], "big") + 14 if ip != 54 else len(frame)
        addresses = (frame[26:30], frame[30:34]) if ip != 54 else (frame[22:38], frame[38:54])
        ends = frozenset(a + frame[p : p + 2] for a, p in zip(addresses, (ip, ip + 2), strict=True))
        size = total - ip - (frame[ip + 12] >> 4) * 4
        if ends not in seen and len(seen) == CONNECTIONS:
            continue
        count = seen[ends]
        if size > 0:
            count[0] += 1
            count[1] += size
        if count[0] <= PACKETS and count[1] <= BYTES and (size > 0 or frame[ip + 13] & 7):
            kept.append(record)
    return b"".join(kept)


def run(recipe: Recipe, folder: Path, pcap: Path, space: str) -> None:
    inside = ["ip", "netns", "exec", space]
    subprocess.run(["ip", "netns", "add", space], check=True)
    started: list[subprocess.Popen[bytes]] = []
    environment = {
        **os.environ, "KRB5_CONFIG": str(folder / "krb5.conf"), "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        "KRB5CCNAME": str(folder / "cc"), "PYTHONPATH": "",
    }  # fmt: skip

    def start(command: list[str]) -> None:
        with (folder / "log").open("ab") as log:
            started.append(
                subprocess.Popen(
                    inside + command,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    try:
        subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True)
        with (folder / "log").open("ab") as log:
            subprocess.run(
                [*inside, "sh", "-c", recipe.setup],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        start(["tcpdump", "-i", "lo", "--immediate-mode", "-U", "-q", "-w", str(pcap), "tcp"])
        time.sleep(0.7)
        for server in recipe.servers:
            start(["sh", "-c", f"exec {server}" if "=" not in server.split()[0] else f"exec env {server}"])
        time.sleep(recipe.wait)
        start(["sh", "-c", recipe.client])
        try:
            started[-1].wait(recipe.seconds)
        except subprocess.TimeoutExpired:
            print("  the client was stopped")
        time.sleep(0.5)
    finally:
        for process in reversed(started):
            with_group(process, signal.SIGTERM)
            time.sleep(0.2)
        for process in started:
            with_group(process, signal.SIGKILL)
            process.wait()
        subprocess.run(["ip", "netns", "del", space], check=True)


def with_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def main(target: Path, names: list[str]) -> int:
    failed = []
    for name in names or sorted(RECIPES):
        folder = Path(tempfile.mkdtemp(prefix="foreign-"))
        pcap = folder / "all.pcap"
        run(RECIPES[name], folder, pcap, f"dissect-{os.getpid()}")
        data = trimmed(pcap.read_bytes()) if pcap.exists() else b""
        if len(data) < 200:
            failed.append(name)
            print(name, "FAILED:", *(folder / "log").read_text(errors="replace").splitlines()[-4:], sep="\n  ")
            continue
        small = folder / f"{name}.pcap"
        small.write_bytes(data)
        subprocess.run(["zstd", "-q", "-19", "-f", str(small), "-o", str(target / f"{name}.pcap.zst")], check=True)
        print(name, len(data), (target / f"{name}.pcap.zst").stat().st_size, flush=True)
        shutil.rmtree(folder)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
