"""An output that is one of the files that a command reads is refused, and the file stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkatap.__main__ import main

KEY_LOG = f"CLIENT_RANDOM {'0' * 64} {'1' * 96}\n"


@pytest.mark.parametrize(
    ("words", "option", "content"),
    [
        (["report", "--html"], "--keylog", KEY_LOG),
        (["report", "--sections", "zones", "--html"], "--zones", "127.0.0.0/8 here\n"),
        (["report", "--html"], "--request-log", "a line\n"),
        (["records", "-o"], "--keylog", KEY_LOG),
        (["extract", "-o"], "--keylog", KEY_LOG),
        (["extract", "--anonymize", "-o"], "--anonymize-key", "k" * 32),
        (["compare", "--split", "+1s", "--html"], "--keylog", KEY_LOG),
    ],
)
def test_inputs_are_not_overwritten(
    words: list[str], option: str, content: str, sample: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "input.txt"
    path.write_text(content)
    assert main([*words, str(path), option, str(path), str(sample)]) == 2
    assert f"would overwrite the input {path}" in capsys.readouterr().err
    assert path.read_text() == content


def test_a_key_log_of_a_glob_is_not_overwritten(
    sample: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "one.log"
    path.write_text(KEY_LOG)
    assert main(["report", "--html", str(path), "--keylog", str(tmp_path / "*.log"), str(sample)]) == 2
    assert f"would overwrite the input {path}" in capsys.readouterr().err
