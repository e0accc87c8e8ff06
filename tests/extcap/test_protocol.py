"""The calls of Wireshark, as extcap(4) describes them, and the pipe between it and the capture."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from kafkatap.commands.command_parser import parse
from kafkatap.extcap.protocol import PacketPipe, interface_of, list_interfaces, list_options
from tests.cli.running import kafkatap

SENTENCE = re.compile(r"(extcap|interface|dlt|arg|value) ((?:\{[a-z]+=[^{}]*\})+)")


def sentences(text: str) -> list[tuple[str, dict[str, str]]]:
    found = []
    for line in text.splitlines():
        matched = SENTENCE.fullmatch(line)
        assert matched, line
        found.append((matched[1], dict(part.split("=", 1) for part in matched[2][1:-1].split("}{"))))
    return found


def test_interfaces_are_listed() -> None:
    done = kafkatap("extcap", "--extcap-interfaces", "--extcap-version=4.4")
    assert (done.code, done.err) == (0, "")
    (program, *interfaces) = sentences(done.out)
    assert program[0] == "extcap"
    assert {values["value"] for _, values in interfaces} == {
        f"kafkatap-{name}" for name in ("any", *(name for _, name in socket.if_nameindex()))
    }
    assert ("interface", {"value": "kafkatap-lo", "display": "Kafka exchanges on lo"}) in interfaces


def test_link_types_and_what_is_wrong_with_a_filter() -> None:
    def said(*arguments: str) -> str:
        done = kafkatap("extcap", "--extcap-interface", *arguments)
        assert (done.code, done.err) == (0, "")
        return done.out

    assert sentences(said("kafkatap-lo", "--extcap-dlts")) == [
        ("dlt", {"number": "1", "name": "EN10MB", "display": "Ethernet"})
    ]
    assert sentences(said("kafkatap-any", "--extcap-dlts"))[0][1]["name"] == "RAW"
    assert said("kafkatap-lo", "--extcap-capture-filter", "tcp port 9092") == ""
    assert "the capture filter 'tcp prt' is wrong" in said("kafkatap-lo", "--extcap-capture-filter", "tcp prt")


def test_options_in_the_dialog_are_options_of_the_command() -> None:
    arguments: dict[str, dict[str, str]] = {}
    for word, values in sentences("\n".join(list_options())):
        if word == "arg":
            arguments[values["number"]] = values
            continue
        assert values["arg"] in arguments
        parse(["extcap", arguments[values["arg"]]["call"], values["value"]])
    for values in arguments.values():
        if "default" in values:
            parse(["extcap", values["call"], values["default"]])
    plain = parse(["extcap"])
    assert (plain.exchanges, plain.comments, plain.snap_length, plain.ring_size) == ("all", "all", 262_144, 64 << 20)


def test_names_of_interfaces_cannot_break_a_sentence() -> None:
    (_, values) = sentences("\n".join(list_interfaces(["a{b}c"], "1")))[1]
    assert values["value"] == "kafkatap-a(b)c"
    with pytest.raises(ValueError, match="no interface of kafkatap is called 'eth0'"):
        interface_of("eth0")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Wireshark runs this command"),
        (["--extcap-interface", "kafkatap-nosuch0", "--extcap-dlts"], "there is no interface nosuch0"),
        (["--extcap-interface", "kafkatap-lo", "--capture"], "--capture needs --fifo"),
        (["--extcap-interface", "kafkatap-lo", "--capture", "--fifo", "/dev/null", "--filter", "no ="], "no ="),
    ],
)
def test_wrong_calls_say_what_is_wrong(arguments: list[str], said: str) -> None:
    done = kafkatap("extcap", *arguments)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err


def test_a_pipe_without_a_reader_ends_with_the_capture(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    pipe = PacketPipe(str(path), lambda: True)
    assert pipe.is_left
    pipe.write(b"nothing")
    pipe.close()


def test_a_reader_that_leaves_is_noticed(tmp_path: Path) -> None:
    path, read = tmp_path / "fifo", []
    os.mkfifo(path)

    def reader() -> None:
        with open(path, "rb") as file:
            read.append(file.read(4))

    thread = Thread(target=reader)
    thread.start()
    pipe = PacketPipe(str(path), lambda: False)
    pipe.write(b"pcap")
    thread.join(30)
    assert read == [b"pcap"]
    assert not pipe.has_reader()
    pipe.write(b"more")
    pipe.close()


def test_a_file_is_private(tmp_path: Path) -> None:
    pipe = PacketPipe(str(tmp_path / "file"), lambda: False)
    pipe.write(b"pcap")
    assert pipe.has_reader()
    pipe.close()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_the_options_are_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "wireshark-users.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `(--[a-z-]+)` \| (.+?) \|", text, re.MULTILINE)
    options = [values for word, values in sentences("\n".join(list_options())) if word == "arg"]
    assert told == [(values["call"], values["display"]) for values in options]


def test_wireshark_s_questions_start_no_engine() -> None:
    """It asks several of them whenever it starts."""
    code = (
        "import sys\nfrom kafkatap.__main__ import main\n"
        "for call in (['--extcap-interfaces'], ['--extcap-config'], ['--extcap-dlts']):\n"
        "    assert main(['extcap', '--extcap-interface', 'kafkatap-lo', *call]) == 0\n"
        "print('heavy:', *{'numpy', 'pyarrow', 'scapy', 'kafkatap.engine.engine'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy:"
