"""Completion scripts and manual pages have every command, option and choice of the parser."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

import pytest

from kafkatap.commands.command_parser import COMMANDS, build_parser
from kafkatap.commands.completion.command import completion_script
from kafkatap.commands.completion.shell_files import man_pages


def needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


def parsers() -> dict[str, argparse.ArgumentParser]:
    (commands,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(commands.choices)


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    return {text for action in parser._actions if action.help != argparse.SUPPRESS for text in action.option_strings}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "kafkatap.bash"
    path.write_text(completion_script("bash"), encoding="utf-8")
    return path


def completed(script: Path, *lines: str, folder: Path) -> list[set[str]]:
    """What bash offers for the last word of each command line, as it does when the user presses TAB."""
    code = [f"source {script}", "declare -A seen"]
    for line in lines:
        words = line.split(" ")
        code += [
            f"COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}; COMPREPLY=()",
            'function=$(complete -p kafkatap | sed "s/.*-F \\([^ ]*\\).*/\\1/"); $function kafkatap',
            'printf "%s\\n" "${COMPREPLY[@]}"; echo =====',
        ]
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(code)], cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    return [set(part.split()) for part in done.stdout.split("=====\n")[:-1]]


def test_bash_offers_every_command_option_and_choice(script: Path, tmp_path: Path) -> None:
    every = parsers()
    lines = ["kafkatap ", *(f"kafkatap {name} -" for name in every)]
    choices = [
        (f"kafkatap {name} {option} ", set(map(str, action.choices)))
        for name, parser in every.items()
        for action in parser._actions
        if action.choices
        for option in action.option_strings
    ]
    found = completed(script, *lines, *(line for line, _ in choices), folder=tmp_path)
    assert found[0] == set(COMMANDS)
    for (name, parser), offered in zip(every.items(), found[1:], strict=False):
        assert offered == options_of(parser), name
    assert len(choices) > 5
    for (line, wanted), offered in zip(choices, found[len(lines) :], strict=True):
        assert wanted <= offered, line


def test_bash_offers_files_for_captures_and_folders_for_folders(script: Path, tmp_path: Path) -> None:
    (tmp_path / "one.pcap").touch()
    (tmp_path / "tables").mkdir()
    files, zones, folders = completed(
        script, "kafkatap report on", "kafkatap report --zones on", "kafkatap report one.pcap --parquet t",
        folder=tmp_path,
    )  # fmt: skip
    assert files == zones == {"one.pcap"}
    assert {folder.rstrip("/") for folder in folders} == {"tables"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_their_script(shell: str, tmp_path: Path) -> None:
    needs(shell)
    path = tmp_path / "script"
    path.write_text(completion_script(shell), encoding="utf-8")
    subprocess.run([shell, "-n", str(path)], check=True, timeout=60)


def test_pages_have_all_options_and_no_warnings(tmp_path: Path) -> None:
    pages = man_pages("1.2")
    assert set(pages) == {"kafkatap.1", *(f"kafkatap-{name}.1" for name in COMMANDS)}
    for name, parser in parsers().items():
        plain = pages[f"kafkatap-{name}.1"].replace("\\-", "-")
        assert not {option for option in options_of(parser) if option not in plain} - {"-h", "--help"}, name
    for name, page in pages.items():
        (tmp_path / name).write_text(page, encoding="utf-8")
    checked = 0
    if shutil.which("mandoc"):
        done = subprocess.run(
            ["mandoc", "-T", "lint", "-W", "warning", *pages], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
        checked += 1
    if shutil.which("man") and shutil.which("groff"):
        for name in pages:
            done = subprocess.run(
                ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", name], cwd=tmp_path, capture_output=True,
                text=True, check=False,
            )  # fmt: skip
            assert (done.returncode, done.stderr) == (0, ""), name
        checked += 1
    if not checked:
        pytest.skip("neither mandoc nor man with groff is installed: no warnings were looked for")
