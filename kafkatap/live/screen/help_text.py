"""The help of the live screen."""

from __future__ import annotations

from .columns import Line

HELP = """\
Views
  1 2 3 4       requests by API, client, topic, broker
  5             the connections of each broker
  6             who waits: requests that their broker should have answered
  7             events, the last first: brokers that stop or hang, hosts that are
                cut off, moved leaders, bursts of errors, rebalances, quotas
  8             groups: members, rebalances and their causes
  9             error codes: in which requests, of whom, where
  tab           the next view, or the next part of an opened row; also left
                and right

Keys
  enter         open a row: its parts, connections and last messages
                enter on a message or an event: all that is known of it
  l             the last messages of the chosen row
  esc           back; also backspace
  w             window: the last 10 s, the last minute, since the start
  s  < >        sort by the next column; by the one to the left or right
  r             reverse the order
  up down       choose a row; also j k, page up, page down, home, end
  /             a filter, as for --filter: api == Produce and latency > 50ms.
                It counts the last exchanges and those that come. One word:
                only rows that contain it. enter keeps it, esc clears it
  d             save the packets of the chosen row that are in memory
                (--write-pcap)
  p  space      hold the screen; counting continues
  z             restart the counts
  q             quit, and print the report

Columns
  req/s         requests a second
  p50  p99      broker time: from the request's last byte to the response's
                first byte, without head-of-line wait and throttle wait
  (1.02 s)      in brackets: the requests wait for data or for other members
                (Fetch, JoinGroup, SyncGroup); this does not show a slow
                broker. Rows with other requests show the times of those
  total p99     from the request's first byte to the response's last byte
  throttled     responses with throttle_time_ms above 0
  thr.wait      throttle wait: time that requests waited on the wire because
                of throttling, summed
  unans.        requests without a response
  failed        exchanges with an error code
  codes/s       error codes a second, at any level of the responses
  error code    the most frequent error code
  in/s  out/s   bytes of requests and of responses a second
  from          address of the client; +2: it has two more

Connections (5)
  open          open connections
  opened        handshakes in the window
  refused       a RST or ICMP answered the SYN: no process listens, or a
                firewall rejects
  no answer     nothing answered the SYN for a second
  resets        connections that a RST ended
  retrans.      retransmitted packets of both ends
  zero win.     packets with a receive window of zero
  rtt           mean round trip of the handshakes

Waiting (6)
  waits         the oldest request of a client at a broker, beyond what the
                broker may hold it for data, for members or because of a quota
  connections   of this client, on which a request waits

Groups (8)
  members       those that sent a request in the last minute
  rebal.        rebalances in the window
  unassigned    the longest time in them that a partition had no member
  errors        error codes of the group's requests, since the start
  lag           of reads; with --sections groups

Head
  drops         packets that the kernel dropped, not read in time
  level         full: everything is decoded; no topics: only error codes and
                throttling of the bodies; headers only: requests, responses
                and their times; paused: at times nothing is read
  waiting       requests without a response so far
  encrypted     the share of the traffic that is TLS, and was not decrypted
  decrypted     the share of the traffic that is TLS, and was decrypted
"""


HELP_LINES: list[Line] = [[(line, "bold" if line[:1].strip() else "")] for line in HELP.splitlines()]
