"""What goes wrong gets one clear line: which file, where, what to do. What was read before it is still reported."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.captures import pcap_bytes
from tests.support.tcp import TcpConversation, encode

from .conftest import DAMAGED_AFTER
from .running import KAFKATAP, ROOT, Done, environment, kafkatap, without_compiling


def line_of(done: Done) -> str:
    lines = done.err.splitlines()
    assert len(lines) == 1, done.err
    assert lines[0].startswith("kafkatap: ")
    return lines[0].removeprefix("kafkatap: ")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.pcap", "missing.pcap: no such file or directory"),
        ("folder", "folder: there is no capture in this folder"),
        ("empty.pcap", "empty.pcap: the file is empty (0 bytes); is it still being written, or was it copied in part?"),
        ("tiny.pcap", "tiny.pcap: cut short: only 10 of the 24 bytes of a pcap header are there at byte 10; is it "
         "still being written, or was it copied in part?"),
        ("text.txt", "text.txt: not a pcap or pcapng capture (it begins with the bytes 68 65 6c 6c); use a pcap or "
         "pcapng file (also .gz or .zst)"),
        ("xz.pcap.xz", "xz.pcap.xz: compressed by xz, which is not read here: unxz it first"),
    ],
)  # fmt: skip
def test_nothing_readable_ends_with_2(captures: Path, name: str, said: str) -> None:
    done = kafkatap("report", name, cwd=captures)
    assert (done.code, done.out) == (2, "")
    assert line_of(done) == said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cut.pcap", r"cut short: the last packet is not whole at byte 699870; the 1,957 packets before .*"),
        ("cut.pcapng", r"cut short: the last packet is not whole at byte 298688; the 1,135 packets before .*"),
        ("cut.pcap.gz", r"the gzip stream is cut short at byte \d+ after decompression; the [\d,]+ packets before .*"),
        ("cut.pcap.zst", r"the zstd stream is cut short at byte \d+ after decompression; the [\d,]+ packets before .*"),
        ("damaged.pcap", rf"damaged: there can be no pcap record at byte \d+; the {DAMAGED_AFTER:,} packets before .*"),
        ("damaged.pcapng", r"damaged: there can be no pcapng record at byte \d+; the 497 packets before .*"),
        ("damaged.pcap.gz", r".*damaged.* at byte \d+ after decompression; the [\d,]+ packets before .*"),
        (
            "damaged.pcap.zst",
            r"the zstd stream is damaged \(.*\) at byte \d+ after decompression; the [\d,]+ packets .*",
        ),
    ],
)
def test_what_came_before_damage_is_reported(captures: Path, name: str, said: str) -> None:
    done = kafkatap("report", "--json", name, cwd=captures)
    assert done.code == 1
    assert re.fullmatch(f"{name}: {said}", line_of(done)), done.err
    report = json.loads(done.out)
    assert report["capture"]["requests"] > 100
    assert f"the {report['capture']['packets']:,} packets before that are in the report" in done.err
    assert report["warnings"][0].startswith(f"{name}: ")
    assert report["reports"]["files"][0]["damage"] in done.err


def test_one_damaged_file_does_not_cost_the_others(captures: Path) -> None:
    done = kafkatap("report", "--json", "text.txt", "whole.pcap", cwd=captures)
    assert done.code == 1
    assert "text.txt: not a pcap" in line_of(done)
    assert json.loads(done.out)["capture"]["requests"] == 1514


def test_no_kafka(captures: Path, tmp_path: Path) -> None:
    done = kafkatap("report", "no-packets.pcap", cwd=captures)
    assert done.code == 1
    assert line_of(done) == "this input has no packets (did the capture filter exclude all?)"
    talk = TcpConversation(("10.0.0.1", 40000), ("10.0.0.2", 80))
    talk.open()
    talk.client(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n" * 4)
    talk.server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" * 4)
    (tmp_path / "web.pcap").write_bytes(pcap_bytes(encode(talk.segments)))
    done = kafkatap("report", tmp_path / "web.pcap")
    assert done.code == 1
    assert line_of(done).startswith("no Kafka found in this input")
    assert "not Kafka" in done.out


def test_only_tls(tmp_path: Path) -> None:
    talk = TcpConversation(("10.0.0.1", 40000), ("10.0.0.2", 9093))
    talk.open()
    talk.client(b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + bytes(range(194)))
    talk.server(b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76\x03\x03" + bytes(range(116)))
    for _ in range(5):
        talk.client(b"\x17\x03\x03\x01\x00" + bytes(256))
        talk.server(b"\x17\x03\x03\x01\x00" + bytes(256))
    (tmp_path / "tls.pcap").write_bytes(pcap_bytes(encode(talk.segments)))
    done = kafkatap("report", tmp_path / "tls.pcap")
    assert done.code == 1
    assert line_of(done) == (
        "no readable Kafka in this input: its connections are encrypted (TLS): no key log was given (1 connection)"
    )
    assert "100 % of the payload is TLS and was not decrypted: no key log was given (1 connection)." in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--csv", "text.txt", "whole.pcap"], "text.txt is not a directory"),
        (["--api", "Fetchh", "whole.pcap"], "no API is called 'Fetchh'; did you mean Fetch"),
        (["-", "-"], "standard input (-) can be read only once"),
    ],
)
def test_wrong_calls_are_told_before_anything_is_read(captures: Path, arguments: list[str], said: str) -> None:
    done = kafkatap("report", *arguments, cwd=captures)
    assert (done.code, done.out) == (2, "")
    assert said in line_of(done)


def test_file_names_do_nothing_on_a_terminal(captures: Path, tmp_path: Path) -> None:
    hostile = tmp_path / "a\x1b[31m\nb.pcap"
    hostile.write_bytes((captures / "cut.pcap").read_bytes())
    done = kafkatap("report", hostile)
    assert done.code == 1
    assert r"a\x1b[31m\x0ab.pcap" in line_of(done)
    assert "\x1b" not in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "--filtre", "x", "whole.pcap"), "there is no option --filtre; did you mean --filter?"),
        (("report", "--jsn", "whole.pcap"), "there is no option --jsn; did you mean --json?"),
        (("records", "--vales=hex", "whole.pcap"), "there is no option --vales; did you mean --values?"),
        (("report", "--zz\x1bzz", "whole.pcap"), "there is no option --zz\\x1bzz"),
        (("report", "--sections", "slowst", "whole.pcap"),
         "argument --sections: no section is called 'slowst'; did you mean slowest?"),
        (("report", "--by", "clint", "whole.pcap"), "argument --by: invalid choice: 'clint'; did you mean client?"),
        (("report",), "the following arguments are required: CAPTURE"),
    ],
)  # fmt: skip
def test_a_mistyped_option_is_one_line_and_no_usage(captures: Path, arguments: tuple[str, ...], said: str) -> None:
    done = kafkatap(*arguments, cwd=captures)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"kafkatap: {said}\nkafkatap {arguments[0]} --help lists all options\n"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("repotr", "there is no command 'repotr'; did you mean report?"),
        ("whole.pcap", "there is no command 'whole.pcap'; to report on a capture: kafkatap report whole.pcap"),
        ("a b.pcap.zst", "there is no command 'a b.pcap.zst'; to report on a capture: kafkatap report 'a b.pcap.zst'"),
        ("zzzz", "there is no command 'zzzz'"),
        ("--jsn", "there is no option --jsn"),
    ],
)
def test_a_mistyped_command(captures: Path, word: str, said: str) -> None:
    done = kafkatap(word, cwd=captures)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"kafkatap: {said}\nkafkatap --help lists all commands\n"


def test_brief_is_no_option_of_lines(captures: Path) -> None:
    done = kafkatap("show", "--brief", "whole.pcap", cwd=captures)
    assert (done.code, done.out) == (2, "")
    assert "--json" in done.err


@pytest.mark.parametrize("command", ["records", "show"])
@pytest.mark.parametrize("name", ["cut.pcap", "damaged.pcap.gz", "cut.pcap.zst"])
def test_damage_is_told_however_few_are_asked_for(captures: Path, command: str, name: str) -> None:
    whole = kafkatap(command, name, cwd=captures)
    assert whole.code == 1
    for number in ("1", "100000", "all") if (command, name) == ("show", "cut.pcap") else ("1",):
        done = kafkatap(command, "-n", number, name, cwd=captures)
        counted = re.sub(r"^kafkatap: 1 of [0-9,]+ messages shown\n", "", done.err)
        assert (done.code, counted) == (whole.code, whole.err), number


def test_a_capture_that_cannot_be_opened_does_not_cost_the_others(captures: Path, tmp_path: Path) -> None:
    good, loop = captures / "whole.pcap", tmp_path / "loop.pcap"
    loop.symlink_to(loop)
    for command in ("report", "show", "records"):
        both = kafkatap(command, good, loop)
        assert both.code == 1
        assert "loop.pcap: cannot be opened: too many levels of symbolic links" in both.err
        assert both.out
        assert kafkatap(command, loop).code == 2
        assert kafkatap(command, loop, loop.with_name("none.pcap")).code == 2
    assert "empty" not in kafkatap("report", good, loop).err


def test_warnings_are_about_what_is_selected(samples: Path) -> None:
    capture = samples / "apache-4.3.pcap.zst"
    whole, nobody, one = (
        json.loads(kafkatap("report", "--json", *options, capture).out)["warnings"]
        for options in ((), ("--client", "nobody"), ("-f", "outcome == unanswered and request_packet_first == 3582"))
    )
    assert "1 request has no response in this capture." in whole
    assert not any("no response" in text for text in nobody)
    assert "1 request has no response in this capture." in one
    others = [text for text in whole if "no response" not in text]
    assert nobody == [f"Whole capture: {text}" for text in others]


def test_the_reader_of_a_help_or_list_may_go_away() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    calls = ("--help", "--version", "report -h", "report --help", "report --sections help", "report --filter help",
             "apis", "completion bash", "extcap --extcap-interfaces")  # fmt: skip
    for call in calls:
        done = subprocess.run(
            [*KAFKATAP, *call.split()], stdout=writing, stderr=subprocess.PIPE, cwd=ROOT, env=environment(),
            timeout=60, check=False,
        )  # fmt: skip
        assert (call, done.returncode, without_compiling(done.stderr.decode())) == (call, 0, "")
    os.close(writing)
