"""What is told while packets are captured: at once, or on the screen and when it has ended."""

from __future__ import annotations

import io
import json

import pytest

from kafkatap.complaints import log_format
from kafkatap.live import notices
from kafkatap.live.notices import Notices


def test_without_a_screen_it_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    told = Notices()
    told.notify("eth0 is up again")
    assert capsys.readouterr().err == "kafkatap: eth0 is up again\n"
    assert told.newest == ""


def test_a_screen_shows_it_for_a_while(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(notices.time, "monotonic", lambda: now)
    told = Notices()
    with told.on_screen():
        assert told.newest == ""
        told.notify("one")
        told.notify("two\x1b[2J")
        assert told.newest == "two\x1b[2J"
        now += notices.SHOWN + 1
        assert told.newest == ""
        assert capsys.readouterr().err == ""
    assert capsys.readouterr().err == "kafkatap: one\nkafkatap: two\\x1b[2J\n"
    told.notify("three")
    assert capsys.readouterr().err == "kafkatap: three\n"


def test_it_is_said_also_where_the_screen_fails(capsys: pytest.CaptureFixture[str]) -> None:
    told = Notices()

    def fail() -> None:
        with told.on_screen():
            told.notify("one")
            raise OSError("no terminal")

    with pytest.raises(OSError, match="no terminal"):
        fail()
    assert capsys.readouterr().err == "kafkatap: one\n"


def test_lines_are_json_with_all_that_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    told = Notices()
    with log_format("json"):
        told.notify("eth0 is up again")
        with told.on_screen():
            told.notify("broker \x1b[2J stopped", kind="event", event="broker_stopped", begin=None)
    told.notify("text again")
    first, second, last = capsys.readouterr().err.splitlines()
    made = json.loads(first)
    assert made.pop("time").endswith("Z")
    assert made == {"kind": "notice", "text": "eth0 is up again"}
    made = json.loads(second)
    del made["time"]
    assert made == {"kind": "event", "text": "broker \x1b[2J stopped", "event": "broker_stopped", "begin": None}
    assert "\x1b" not in second
    assert last == "kafkatap: text again"


def test_a_line_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread writes lines to standard error, too: of `--plain` beside `--json`."""
    parts: list[str] = []

    class Parts(io.StringIO):
        def write(self, text: str) -> int:
            parts.append(text)
            return len(text)

    monkeypatch.setattr("sys.stderr", Parts())
    Notices().notify("eth0 is up again")
    assert parts == ["kafkatap: eth0 is up again\n"]
