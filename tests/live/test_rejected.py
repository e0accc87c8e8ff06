"""A firewall in front of a broker that rejects: real rules of Linux, over IPv4 and IPv6."""

from __future__ import annotations

import socket
import subprocess

import pytest

from . import network
from .running import Live, wait_for
from .test_beside_ss import parsed, summed

WHY_NOT = network.missing("iptables", "ip6tables", admin=True)
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
PORT = 9092
#: By family: the reasons that iptables can give. Without one it sends "port unreachable".
REASONS = {
    "iptables": ("icmp-port-unreachable", "icmp-host-prohibited", "icmp-admin-prohibited"),
    "ip6tables": ("icmp6-port-unreachable", "icmp6-adm-prohibited"),
}


def reject(veth: network.Veth, program: str, reason: str, what: str = "-A") -> None:
    rule = ["-p", "tcp", "--dport", str(PORT), "-j", "REJECT", "--reject-with", reason]
    subprocess.run(veth.inside([program, what, "INPUT", *rule]), check=True, capture_output=True, timeout=30)


def test_rejected_connections_are_refused_and_not_unanswered() -> None:
    with network.namespace_pair() as veth:
        network.ip("addr", "add", "fd77::1/64", "dev", veth.near, "nodad")
        network.ip("-n", veth.namespace, "addr", "add", "fd77::2/64", "dev", veth.far, "nodad")
        addresses = {"iptables": veth.far_address, "ip6tables": "fd77::2"}
        with Live("-i", veth.near, "--plain", "--no-report", "--interval", "1s") as live:
            live.wait_ready()
            asked = 0
            for program, reasons in REASONS.items():
                for reason in reasons:
                    reject(veth, program, reason)
                    for _ in range(2):
                        with pytest.raises(OSError, match=r"\[Errno"):
                            socket.create_connection((addresses[program], PORT), timeout=5)
                        asked += 1
                    reject(veth, program, reason, "-D")
            wait_for(lambda: summed(live, "refused") == asked, 15, live.out)
            lines = len(parsed(live))
            wait_for(lambda: len(parsed(live)) > lines + 1, 15, live.out)
            assert (summed(live, "refused"), summed(live, "no_answer")) == (asked, 0)
            assert live.end().code == 0
