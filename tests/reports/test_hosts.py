"""Names for addresses: formats of files, spans of time, networks, and errors."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkatap.engine.host_names import WatchedHosts, open_hosts
from kafkatap.reports.hosts.host_entry import METADATA, PCAPNG, HostEntry, host_entry
from kafkatap.reports.hosts.host_files import HostFile, entries_of, zones_of
from kafkatap.reports.hosts.host_table import HostName, HostTable, succeeding

SECOND = 1_000_000_000


def table(*texts: str | dict[str, Any]) -> HostTable:
    contents = [text if isinstance(text, str) else json.dumps(text) for text in texts]
    return HostTable(entries_of([HostFile(f"{n}.txt", c.encode()) for n, c in enumerate(contents)], utc=True))


def names(found: HostTable, address: str, *seconds: int) -> list[str | None]:
    at = [found.name_at(address, second * SECOND) for second in seconds]
    return [None if name is None else name.text for name in at]


def test_a_hosts_file() -> None:
    found = table("# the brokers\n10.0.0.1  kafka-1 kafka-1.example  # first\n\n::1 localhost\nfe80::1%eth0 gate\n")
    assert names(found, "10.0.0.1", 0) == ["kafka-1"]
    assert names(found, "::1", 0) == ["localhost"]
    assert names(found, "fe80::1", 0) == ["gate"]
    assert names(found, "10.0.0.2", 0) == [None]
    assert names(found, "(other)", 0) == [None]


CSV = """\
address,name,labels,from,to
10.244.3.17,payments-7f9,zone=a;team=shop,1970-01-01 00:00:10,1970-01-01T00:00:20Z
10.244.3.17,orders-1b2,,1970-01-01 00:00:25,
10.0.0.0/8,office,,,
10.244.0.0/16,pods,,,
"""


def test_csv_with_spans_and_networks() -> None:
    found = table(CSV)
    assert names(found, "10.244.3.17", 9, 10, 19, 20, 24, 25, 99) == [
        "pods", "payments-7f9", "payments-7f9", "pods", "pods", "orders-1b2", "orders-1b2",
    ]  # fmt: skip
    assert names(found, "10.9.9.9", 0) == ["office"]
    assert found.text("10.244.3.17", 11 * SECOND, 12 * SECOND) == "payments-7f9"
    assert found.text("10.244.3.17", 11 * SECOND, 99 * SECOND) == "payments-7f9, then orders-1b2"
    assert found.text("192.168.0.1", 0, SECOND) is None


def test_csv_without_a_first_line_of_names_and_with_labels_as_columns() -> None:
    assert names(table("10.0.0.1,a\n10.0.0.2,b,zone=x\n"), "10.0.0.2", 0) == ["b"]
    assert table("ip,host,zone\n10.0.0.1,a,eu-1\n").zone("10.0.0.1") == "eu-1"


def test_numbers_of_arrays_are_those_of_single_times() -> None:
    found = table(CSV)
    addresses = ["10.9.9.9", "10.244.3.17", "192.168.0.1"]
    rng = np.random.default_rng(1)
    ip, at = rng.integers(-1, 3, 500), rng.integers(0, 40, 500) * SECOND
    numbers = found.numbers(ip, at, addresses)
    assert len(set(numbers.tolist())) == 5
    for number, address, time in zip(numbers.tolist(), ip.tolist(), at.tolist(), strict=True):
        expected = None if address < 0 else found.name_at(addresses[address], time)
        assert (None if number < 0 else found.names[number]) == expected


def test_numbers_stay_while_entries_change() -> None:
    found = table("10.0.0.1,a\n10.0.0.2,b\n")
    before = found.numbers(np.array([0, 1]), np.zeros(2), ["10.0.0.1", "10.0.0.2"]).tolist()
    found.renew(table("10.0.0.1,b\n10.0.0.2,c\n").entries)
    after = found.numbers(np.array([0, 1]), np.zeros(2), ["10.0.0.1", "10.0.0.2"]).tolist()
    assert after[0] == before[1]
    assert found.names[after[1]] == HostName("c")
    assert pickle.loads(pickle.dumps(found)) == found


def pod(name: str, ip: str, start: str = "1970-01-01T00:00:00Z", node: str = "node-3", **more: Any) -> dict[str, Any]:
    status = {"podIP": ip, "podIPs": [{"ip": ip}], "startTime": start, "hostIP": "10.0.0.3", **more}
    meta = {"name": name, "namespace": "shop", "labels": {"app": name}}
    return {"kind": "Pod", "metadata": meta, "spec": {"nodeName": node}, "status": status}


NODE = {
    "kind": "Node", "metadata": {"name": "node-3", "labels": {"topology.kubernetes.io/zone": "eu-1a"}},
    "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.3"}, {"type": "Hostname", "address": "n3"}]},
}  # fmt: skip
SERVICE = {
    "kind": "Service", "metadata": {"name": "kafka", "namespace": "default"},
    "spec": {"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"]},
    "status": {"loadBalancer": {"ingress": [{"ip": "52.0.0.1"}]}},
}  # fmt: skip


def items(*each: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(each)}


def test_kubectl() -> None:
    headless = {"kind": "Service", "metadata": {"name": "h"}, "spec": {"clusterIP": "None"}}
    found = table(items(pod("payments", "10.244.3.17"), NODE, SERVICE, headless, {"kind": "ConfigMap"}))
    assert names(found, "10.244.3.17", 5, -5) == ["payments.shop", None]
    assert names(found, "10.96.0.9", 0) == names(found, "52.0.0.1", 0) == ["kafka"]
    assert found.zone("10.244.3.17") == found.zone("10.0.0.3") == "eu-1a"


def test_nodes_of_another_file_have_the_zones_of_pods() -> None:
    pods = items(pod("payments", "10.244.3.17"), pod("b", "10.0.0.3"), pod("c", "10.244.4.1", node="node-4"))
    for files in ((pods, items(NODE)), (items(NODE), pods)):
        found = table(*files)
        assert found.zone("10.244.3.17") == found.zone("10.0.0.3") == "eu-1a"
        assert found.zone("10.244.4.1") is None
    other = json.loads(json.dumps(NODE).replace("eu-1a", "eu-1b").replace("10.0.0.3", "10.9.0.3"))
    assert table(pods, items(NODE), items(other)).zone("10.244.3.17") is None  # of which cluster?
    assert table(items(pod("payments", "10.244.3.17"), NODE), items(other)).zone("10.244.3.17") == "eu-1a"


def test_services_share_addresses_of_load_balancers_and_nodes() -> None:
    """So it is in clusters: a list of their own objects is no error."""
    balanced = {"loadBalancer": {"ingress": [{"ip": "52.0.0.1"}]}}
    services = [
        {"kind": "Service", "metadata": {"name": name, "namespace": "kafka"},
         "spec": {"clusterIP": f"10.96.0.{n}", "externalIPs": ["10.0.0.3"]}, "status": balanced}
        for n, name in enumerate(("broker-0", "bootstrap"), 1)
    ]  # fmt: skip
    found = table(items(*services), items(NODE))
    assert names(found, "52.0.0.1", 0) == ["bootstrap.kafka, broker-0.kafka"]
    assert names(found, "10.0.0.3", 0) == ["node-3"]
    assert names(found, "10.96.0.2", 0) == ["bootstrap.kafka"]


def test_several_pods_behind_the_address_of_their_node() -> None:
    pods = [pod(name, "10.0.0.3") for name in ("proxy", "dns", "logs", "cni")]
    found = table(items(NODE, *pods))
    assert names(found, "10.0.0.3", 5) == ["node-3 (4 pods: cni.shop, dns.shop, …)"]
    assert "logs.shop" in (found.name_at("10.0.0.3", 5 * SECOND) or HostName("")).texts
    assert names(table(items(*pods[:2])), "10.0.0.3", 5) == ["2 pods: dns.shop, proxy.shop"]
    assert names(table(items(pods[0])), "10.0.0.3", 5) == ["proxy.shop"]


def test_pods_come_and_go_in_lists_of_several_times() -> None:
    done = pod("job", "10.244.3.17", phase="Succeeded", containerStatuses=[
        {"state": {"terminated": {"finishedAt": "1970-01-01T00:00:10Z"}}},
    ])  # fmt: skip
    first = items(done, pod("a", "10.244.3.18"))
    second = items(
        pod("a", "10.244.3.18"), pod("b", "10.244.3.18", "1970-01-01T00:00:30Z"),
        pod("c", "10.244.3.17", "1970-01-01T00:00:09Z"),
    )  # fmt: skip
    found = table(first, second)
    assert names(found, "10.244.3.17", 9, 10) == ["job.shop", "c.shop"]
    assert names(found, "10.244.3.18", 29, 30) == ["a.shop", "b.shop"]


def test_aws_interfaces_yield_to_pods() -> None:
    interface = {
        "NetworkInterfaceId": "eni-1", "Description": "aws-K8S-i-0", "AvailabilityZone": "eu-1b",
        "PrivateIpAddress": "10.0.0.3", "TagSet": [{"Key": "Name", "Value": "workers"}],
        "PrivateIpAddresses": [
            {"PrivateIpAddress": "10.0.0.3", "Association": {"PublicIp": "52.0.0.9"}}, {"PrivateIpAddress": "10.0.0.4"},
        ],
        "Ipv6Addresses": [{"Ipv6Address": "2001:db8::1"}], "Attachment": {"InstanceId": "i-0"},
    }  # fmt: skip
    found = table({"NetworkInterfaces": [interface]}, items(pod("a", "10.0.0.4")))
    assert names(found, "10.0.0.3", 0) == names(found, "52.0.0.9", 0) == names(found, "2001:db8::1", 0) == ["workers"]
    assert names(found, "10.0.0.4", 5) == ["a.shop"]
    assert found.zone("10.0.0.3") == "eu-1b"


def test_a_file_comes_before_metadata_before_pcapng() -> None:
    found = table("10.0.0.1 a\n").with_learned([
        host_entry("10.0.0.1", "p", layer=PCAPNG), host_entry("10.0.0.2", "p", layer=PCAPNG),
        host_entry("10.0.0.1", "m", layer=METADATA), host_entry("10.0.0.2", "m", layer=METADATA),
        host_entry("10.0.0.3", "p", layer=PCAPNG),
    ])  # fmt: skip
    assert [names(found, f"10.0.0.{n}", 0) for n in (1, 2, 3)] == [["a"], ["m"], ["p"]]


@pytest.mark.parametrize(("content", "said"), [
    ("10.0.0.1,a\n10.0.0.1,b\n", "10.0.0.1 is a (0.txt, line 1) and b (0.txt, line 2) at the same time"),
    ("10.0.0.1 a\n10.0.0.1 b\n", "0.txt, line 1) and b (0.txt, line 2)"),
    ("address,name,from,to\n10.0.0.1,a,1970-01-01 00:01,1970-01-01 00:03\n10.0.0.1,b,1970-01-01 00:02,\n",
     "10.0.0.1 is a (0.txt, line 2) and b (0.txt, line 3)"),
    ("10.0.0.300,a\n", "0.txt, line 1: '10.0.0.300' is no address or network"),
    ("10.0.0.1,\n", "0.txt, line 1: 10.0.0.1 has no name"),
    ("10.0.0.1,a,,12:00,\n", "line 1: '12:00' needs its date"),
    ("10.0.0.1,a,,soon,\n", "line 1: 'soon' is not a time"),
    ("10.0.0.1,a,,2026-01-02,2026-01-01\n", "line 1: a ends before it begins"),
    ("10.0.0.1,a,,,,,\n", "line 1: 7 values for 5 columns"),
    ("10.0.0.1\n", "line 1: not an address and a name"),
    ("", "no address has a name"),
    ("apiVersion: v1\nitems:\n", "YAML: write it with -o json"),
    ('{"kind": "List", "items": [', "0.txt, line 1: this JSON is cut short"),
    ('{"kind": "List", "items": []}', "no address has a name"),
    ('{"a": 1}', "has no Kubernetes items and no NetworkInterfaces"),
    ("[" * 100_000, "0.txt"),
    ('{"kind": ' + "1" * 5_000 + "}", "0.txt: Exceeds the limit"),
])  # fmt: skip
def test_errors_name_file_and_line(content: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        table(content)


def test_times_beyond_all_clocks() -> None:
    found = table(f"10.0.0.1,a,,,{10**30}\n10.0.0.2,b,,{10**30},\n")
    assert names(found, "10.0.0.1", 0) == ["a"]
    assert found.numbers(np.array([0, 1]), np.zeros(2), ["10.0.0.1", "10.0.0.2"]).tolist() == [0, -1]


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(ValueError, match="not a text in UTF-8"):
        entries_of([HostFile("x.pcap", b"\xd4\xc3\xb2\xa1")])


def test_odd_json_is_no_crash() -> None:
    odd: Any = [1, None, {"kind": "Pod"}, {"kind": "Pod", "metadata": 3, "status": {"podIPs": [4, {"ip": 5}]}}]
    with pytest.raises(ValueError, match="no address has a name"):
        table({"kind": "List", "items": odd})
    assert names(table('10.0.0.1,"a\ud83d"'.encode("utf-8", "replace").decode()), "10.0.0.1", 0) == ["a?"]
    assert names(table({"kind": "Pod", "metadata": {"name": "\ud83d"}, "status": {"podIP": "10.0.0.1"}}),
                 "10.0.0.1", 0) == ["?"]  # fmt: skip


def test_what_leaves_a_file_that_is_read_again_was_there_until_then() -> None:
    def entries(text: str) -> list[HostEntry]:
        return entries_of([HostFile("h.csv", text.encode())], utc=True)

    found = table("10.0.0.1,a\n10.0.0.2,stays\n10.0.0.3,left\n10.0.0.0/24,net\n")
    found.renew(succeeding(found.entries, entries("10.0.0.1,b\n10.0.0.2,stays\n10.0.0.0/24,net\n"), 10 * SECOND))
    assert names(found, "10.0.0.1", 9, 10, 99) == ["a", "b", "b"]
    assert names(found, "10.0.0.2", -99, 10) == ["stays", "stays"]
    assert names(found, "10.0.0.3", 9, 10) == ["left", "net"]
    found.renew(succeeding(found.entries, entries("10.0.0.1,a\n10.0.0.2,stays\n10.0.0.3,new\n"), 20 * SECOND))
    assert names(found, "10.0.0.1", 9, 10, 19, 20) == ["a", "b", "b", "a"]
    assert names(found, "10.0.0.3", 9, 10, 19, 20)[::3] == ["left", "new"]
    again = succeeding(found.entries, entries("10.0.0.1,a\n10.0.0.2,stays\n10.0.0.3,new\n"), 30 * SECOND)
    assert HostTable(again).text("10.0.0.1", 0, 99 * SECOND) == found.text("10.0.0.1", 0, 99 * SECOND)
    assert len(again) == len(found.entries)


def test_pods_that_leave_a_list_end_when_the_next_one_begins() -> None:
    found = table(items(pod("a", "10.244.0.1"), pod("x", "10.0.0.3"), NODE))
    after = items(pod("b", "10.244.0.1", "1970-01-01T00:00:07Z"), pod("y", "10.0.0.3"), NODE)
    found.renew(succeeding(found.entries, table(after).entries, 10 * SECOND))
    assert names(found, "10.244.0.1", 6, 7) == ["a.shop", "b.shop"]
    assert names(found, "10.0.0.3", 9, 10) == ["node-3 (2 pods: x.shop, y.shop)", "node-3 (1 pod: y.shop)"]


def test_files_that_change_while_they_are_watched(tmp_path: Path) -> None:
    path = tmp_path / "h.csv"
    path.write_text("10.0.0.1,a\n")
    found = open_hosts([path])
    watched = WatchedHosts(found, [str(path)])
    later = 1 << 62
    assert watched.look() is None
    path.write_text("10.0.0.1,bb\n")
    assert watched.look() is None
    assert (found.name_at("10.0.0.1", 0), found.name_at("10.0.0.1", later)) == (HostName("a"), HostName("bb"))
    for broken in ("10.0.0.1,c\n10.0.0.1,d\n", ""):
        path.write_text(broken)
        said = watched.look()
        assert said is not None
        assert said.endswith("names of hosts stay as they were")
        assert watched.look() is None  # said once
    path.unlink()
    assert f"{path}: there is no such file" in str(watched.look())
    assert found.name_at("10.0.0.1", later) == HostName("bb")


def test_zones_of_the_same_files() -> None:
    def zones(content: str) -> list[tuple[str, str]]:
        return [(e.network, e.name) for e in zones_of(HostFile("z", content.encode()))]

    assert zones("10.1.0.0/16 eu-1a # rack\n10.1.0.0/16 eu-1b\n10.0.0.9 x\n") == [
        ("10.1.0.0/16", "eu-1a"), ("10.0.0.9", "x"),
    ]  # fmt: skip
    assert zones(json.dumps(items(NODE, pod("a", "10.244.0.1")))) == [("10.0.0.3", "eu-1a"), ("10.244.0.1", "eu-1a")]
    assert zones("10.0.0.1,a,zone=z\n10.0.0.2,b\n") == [("10.0.0.1", "z")]
    for content in ("10.1.0.0/16 eu-1a more\n", "10.1.0.0/16\n"):
        with pytest.raises(ValueError, match="z, line 1: not a network and a zone"):
            zones(content)
    with pytest.raises(ValueError, match="no line has a network and a zone"):
        zones("# nothing\n")
