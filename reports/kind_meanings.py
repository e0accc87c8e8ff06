"""What the kinds of findings mean, in a line each: for `kafkatap help findings`.

A signature's line is its title. Kinds of `compare` are not here.
"""

from __future__ import annotations

from .advice.catalogue import CATALOGUE

#: Findings of the report itself.
OWN = {
    "slow_broker": "slow requests whose time passes at a broker",
    "slow_network": "slow requests whose time passes on the network: lost packets, long paths",
    "slow_client": "slow requests whose time passes at the client: it sends or reads late",
    "slow_head_of_line": "slow requests that wait behind others of their connection",
    "slow_unknown": "slow requests; the capture does not show where their time passes",
    "slow_between_brokers": "slow requests of brokers to each other",
    "throttled": "clients that a quota makes wait",
    "errors": "error codes in responses; `numbers.error` has the name",
    "retried": "error codes that clients retry; usual in small numbers",
    "sasl_failed": "logins that fail",
    "wrong_port": "clients without TLS at a port with it, or the other way round; or at an HTTP server",
    "tls_failed": "TLS handshakes that fail",
    "http_client": "HTTP to a broker",
    "unanswered": "requests whose connection ended before a response",
    "none_answered": "requests wait at the end, and none had a response",
    "certificate": "a certificate that is expired, or will be within 30 days",
    "lossy_host": "packets to or from a host get lost",
    "encrypted": "traffic that was not decrypted: little is known of it",
    "not_decoded": "APIs or versions without a definition",
    "lost": "bytes that are missing in the capture: numbers are too low",
    "seen_twice": "connections before and behind NAT, or both legs of a proxy; a warning if both sides count",
    "mixed_times": "captures of two places, read together: times are not of one place",
    "not_checked": "signatures that only `--sections advice` reads for this input",
    "no_requests": "no request was found",
    "none": "nothing is wrong",
}
#: Events.
EVENTS = {
    "broker_stopped": "a broker stopped: it announces that, closes its connections, or refuses new ones",
    "broker_hung": "a broker answers nobody for a second or more; its connections stay",
    "broker_froze": "a broker answers nobody for less than a second, again and again",
    "broker_unreachable": "packets do not reach a broker, or its answers do not come back",
    "hosts_cut_off": "packets between some hosts do not arrive; others reach the same broker",
    "broker_returned": "a broker that was silent or stopped works again",
    "leaders_moved": "partitions got another leader",
    "isr_shrank": "a follower left the in-sync replicas",
    "isr_grew": "a follower is in sync again",
    "coordinator_moved": "a group or transactional id got another coordinator",
    "group_rebalanced": "members of a group got other partitions, and read nothing meanwhile",
    "error_burst": "ten failures or more in a short time",
    "quota_began": "a broker begins to throttle a client",
    "connection_storm": "a host opens very many connections at once",
    "connection_leak": "a client opens connections and never closes them",
    "topic_created": "a topic was created",
    "topic_deleted": "a topic was deleted",
    "capture_dropped": "the capture program dropped packets",
    "capture_hole": "a time that was not captured",
}
FAMILIES = {
    "findings of the report": OWN,
    "events": EVENTS,
    "signatures, with a setting to change": {each.id: each.title for each in CATALOGUE},
}
