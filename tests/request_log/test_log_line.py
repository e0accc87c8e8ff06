"""Lines of request logs: all formats of Kafka, behind what layouts put around them."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatap.request_log.log_line import CutLine, LogLine, read_line

AT = 1_795_236_238_884_000_000  # 2026-11-21 04:43:58.884 UTC
MS = 1_000_000


def entry(connection: str = "10.77.0.1:9092-10.77.0.3:56954-1-178", **changed: object) -> str:
    """A line's JSON, as Kafka 4.3 writes it."""
    made: dict[str, object] = {
        "isForwarded": False,
        "requestHeader": {"requestApiKey": 1, "requestApiVersion": 18, "correlationId": 301,
                          "clientId": "broker-3-fetcher-0", "requestApiKeyName": "FETCH"},
        "request": {"maxWaitMs": 500, "topics": []}, "response": {"throttleTimeMs": 0},
        "connection": connection, "totalTimeMs": 501.471, "requestQueueTimeMs": 0.068, "localTimeMs": 0.487,
        "remoteTimeMs": 500.627, "throttleTimeMs": 0, "responseQueueTimeMs": 0.127, "sendTimeMs": 0.16,
        "securityProtocol": "PLAINTEXT", "principal": "User:ANONYMOUS", "listener": "PLAINTEXT",
        "clientInformation": {"softwareName": "unknown", "softwareVersion": "unknown"},
    }  # fmt: skip
    return json.dumps({**made, **changed}, separators=(",", ":"))


EXPECTED = LogLine(
    AT, "10.77.0.3", 56_954, "10.77.0.1", 9_092, 301, 1, "FETCH",
    (501_471_000, 68_000, 487_000, 500_627_000, 0, 127_000, 160_000), "PLAINTEXT", False,
)  # fmt: skip
TEXT = (
    "RequestHeader(apiKey=FETCH, apiVersion=11, clientId=broker-3-fetcher-0, correlationId=301) -- "
    "{replica_id=3,topics=[]},response:{throttle_time_ms=0,error_code=0} from connection "
    "10.77.0.1:9092-10.77.0.3:56954-1-178;totalTime:501.471,requestQueueTime:0.068,localTime:0.487,remoteTime:500.627,"
    "throttleTime:0.0,responseQueueTime:0.127,sendTime:0.16,securityProtocol:PLAINTEXT,principal:User:ANONYMOUS,"
    "listener:PLAINTEXT,clientInformation:ClientInformation(softwareName=unknown, softwareVersion=unknown)"
)


@pytest.mark.parametrize(
    "layout",
    [
        "[2026-11-21 04:43:58,884] DEBUG Completed request:{} (kafka.request.logger)",
        "2026-11-21T04:43:58.884Z DEBUG [kafka.request.logger] Completed request:{}",
        "2026-11-21T06:43:58.884+02:00 Completed request:{}",
        "broker-1 | 2026-11-21 04:43:59.001 stdout F [2026-11-21 04:43:58,884] DEBUG Completed request:{} (a.b)\r",
        "Nov 21 04:43:58 host kafka[12]: [2026-11-21 04:43:58,884] DEBUG Completed request: {}",
    ],
)
@pytest.mark.parametrize("body", [entry(), TEXT])
def test_layouts(layout: str, body: str) -> None:
    found = read_line(layout.replace("{}", body))
    assert found is not None
    expected = EXPECTED if body == entry() else EXPECTED._replace(api_key=-1)
    assert found == expected


def test_json_within_json() -> None:
    """As log4j's JSON layouts and container logs write it."""
    line = json.dumps({"timeMillis": AT // MS, "level": "DEBUG", "message": f"Completed request:{entry()}"})
    assert read_line(line) == EXPECTED
    line = json.dumps({"@timestamp": "2026-11-21T04:43:58.884Z", "message": f"Completed request:{entry()}"})
    assert read_line(line) == EXPECTED
    line = json.dumps({"message": f"Completed request:{entry()}", "@timestamp": "2026-11-21T04:43:58.884Z"})
    assert read_line(line) == EXPECTED


@pytest.mark.parametrize(
    ("body", "name", "correlation_id", "times"),
    [
        # 0.8.2: no connection id, ms without fractions
        (
            "Name: ProducerRequest; Version: 0; CorrelationId: 5; ClientId: shop; RequiredAcks: 1 from client "
            "/10.77.0.3:56954;totalTime:12,requestQueueTime:1,localTime:10,remoteTime:0,responseQueueTime:0,sendTime:1",
            "ProducerRequest", 5, (12 * MS, MS, 10 * MS, 0, -1, 0, MS),
        ),
        # 0.10
        (
            "{api_key=3,api_version=1,correlation_id=-7,client_id=a} -- {topics=[]} from connection "
            "10.77.0.1:9092-10.77.0.3:56954;totalTime:2,requestQueueTime:0,localTime:2,remoteTime:0,"
            "responseQueueTime:0,sendTime:0,securityProtocol:PLAINTEXT,principal:User:ANONYMOUS",
            "3", -7, (2 * MS, 0, 2 * MS, 0, -1, 0, 0),
        ),
    ],
)  # fmt: skip
def test_old_formats(body: str, name: str, correlation_id: int, times: tuple[int, ...]) -> None:
    found = read_line(f"[2026-11-21 04:43:58,884] TRACE Completed request:{body} (kafka.request.logger)")
    assert found is not None
    assert (found.end, found.client, found.client_port) == (AT, "10.77.0.3", 56_954)
    assert (found.api_name, found.correlation_id, found.times) == (name, correlation_id, times)


def test_ipv6_and_listeners() -> None:
    found = read_line(f"[2026-11-21 04:43:58,884] Completed request:{entry('0:0:0:0:0:0:0:1:9092-fe80:0:0:0:0:0:0:7%eth0:41234-0-1', listener='CLIENT-INT_1')}")  # fmt: skip  # noqa: E501
    assert found is not None
    assert (found.client, found.client_port, found.broker, found.broker_port) == ("fe80::7", 41_234, "::1", 9_092)
    assert found.listener == "CLIENT-INT_1"
    mapped = read_line(f"Completed request:{entry('0:0:0:0:0:ffff:a4d:1:9092-10.77.0.3:56954-1-178')}")
    assert mapped is not None
    assert (mapped.end, mapped.broker) == (-1, "10.77.0.1")


def test_names_of_clients_cannot_pass_for_fields() -> None:
    client = 'x" correlationId=9) from connection 1.1.1.1:1-2.2.2.2:2-0;totalTime:1'
    header = {"requestApiKey": 1, "requestApiVersion": 18, "correlationId": 301, "clientId": client,
              "requestApiKeyName": "FETCH"}  # fmt: skip
    assert read_line(f"[2026-11-21 04:43:58,884] DEBUG Completed request:{entry(requestHeader=header)}") == EXPECTED
    text = TEXT.replace("broker-3-fetcher-0", "a from connection 1.1.1.1:1-2.2.2.2:2-0;totalTime:1")
    found = read_line(f"[2026-11-21 04:43:58,884] DEBUG Completed request:{text}")
    assert found is not None
    assert (found.client, found.times) == (EXPECTED.client, EXPECTED.times)


def test_cut_lines() -> None:
    for body in (entry(), TEXT):
        whole = f"[2026-11-21 04:43:58,884] DEBUG Completed request:{body}"
        for end in range(len("[2026-11-21 04:43:58,884] DEBUG Completed request:"), len(whole) - 200, 7):
            with pytest.raises(CutLine):
                read_line(whole[:end])
    assert read_line("[2026-11-21 04:43:58,884] INFO started (kafka.server.KafkaServer)") is None


@pytest.mark.parametrize(
    "changed",
    [
        {"connection": "nowhere"}, {"connection": 5}, {"requestHeader": []}, {"connection": "1.1.1.1:99999-a:1-0"},
        {"requestHeader": {"correlationId": 2**40}}, {"requestHeader": {"correlationId": "1"}},
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(CutLine):
        read_line(f"Completed request:{entry(**changed)}")  # type: ignore[arg-type]


def test_times_that_are_no_durations() -> None:
    found = read_line(f"Completed request:{entry(totalTimeMs=-1, localTimeMs=1e300, sendTimeMs=None)}")
    assert found is not None
    assert [found.times[i] for i in (0, 2, 6)] == [-1, -1, -1]


@given(st.text(), st.text())
def test_any_text_is_read_or_refused(before: str, after: str) -> None:
    for text in (before + "Completed request:" + after, before + 'Completed request:{"' + after, before + TEXT + after):
        with suppress(CutLine):
            read_line(text)
