"""No output replaces a file that kafkatap did not write, or one of another kind."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkatap.__main__ import main
from kafkatap.live.recording.recorder import Recorder
from kafkatap.output_file import OutputFile, check_output
from kafkatap.replaceable import KEY_LOG, PCAPNG, TEXT, check_replaceable, found_at
from kafkatap.spark.pack import main as pack
from tests.support.captures import pcap_bytes, pcapng_bytes, read_capture

SAMPLE = Path(__file__).parents[1] / "samples" / "live-4.4.pcap.zst"
PACKETS = read_capture(SAMPLE).packets
#: An option or command, the file that it writes, and a file of that kind of somebody else's.
OUTPUTS = {
    "report --html": ("page.html", b"<!DOCTYPE html>\n<html>mine</html>"),
    "report --csv": ("latency.csv", b"my,own\n1,2\n"),
    "report --plots": ("latency.png", b"\x89PNG\r\n\x1a\nmine"),
    "report --parquet": ("exchanges.parquet", b"PAR1mine\0\0\0\0PAR1"),
    "report --jobs 2 --parquet": ("results.parquet", b"PAR1mine\0\0\0\0PAR1"),
    "report --sections topics --parquet": ("sections/topics.parquet", b"PAR1mine\0\0\0\0PAR1"),
    "compare --html": ("page.html", b"<html>mine</html>"),
    "records -o": ("records.parquet", b"PAR1mine\0\0\0\0PAR1"),
    "records --values hex -o": ("records.txt", b"my notes\n"),
    "records --json -o": ("records.json", b'{"mine": 1}\n'),
    "records --output": ("records.csv", b"my,own\n1,2\n"),
    "extract -o": ("copy.pcapng", pcapng_bytes(PACKETS)),
    "extract --anonymize -o": ("copy.pcapng", pcapng_bytes(PACKETS)),
}
IN_FOLDERS = ("--csv", "--plots", "--parquet")


def words(output: str, folder: Path, name: str, *more: str) -> Sequence[str]:
    command, *options = output.split()
    inputs = [str(folder / "s.pcap")] * (2 if command == "compare" else 1)
    target = folder if options[-1] in IN_FOLDERS else folder / name
    return [command, *inputs, *options, str(target), *more]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.pcap").write_bytes(pcap_bytes(PACKETS))
    (tmp_path / "sections").mkdir()
    return tmp_path


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_file_of_somebody_else_stays(output: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, theirs = OUTPUTS[output]
    file = folder / name
    file.write_bytes(theirs)
    assert main(words(output, folder, name)) == 2
    assert file.read_bytes() == theirs
    assert f"{file}: this is a" in (said := capsys.readouterr().err)
    assert "--overwrite" in said
    assert main(words(output, folder, name, "--overwrite")) == 0
    ours = file.read_bytes()
    assert ours != theirs
    if not name.endswith((".txt", ".json")):  # these have no mark: the first line tells
        assert main(words(output, folder, name)) == 0, "kafkatap wrote it"


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_file_of_another_kind_stays(output: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, _ = OUTPUTS[output]
    file = folder / name
    shutil.copy(folder / "s.pcap", file)
    for more in ((), ("--overwrite",)):
        assert main(words(output, folder, name, *more)) == 2
        assert file.read_bytes() == (folder / "s.pcap").read_bytes()
        assert f"{file}: this is a capture (pcap), and" in (said := capsys.readouterr().err)
        assert "name another file" in said
    file.write_bytes(b"")
    assert main(words(output, folder, name)) == 0, "an empty file may be replaced"
    assert file.stat().st_size


def test_a_file_that_appears_while_a_run_lasts_stays(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    with OutputFile(str(path)) as made:
        made.file.write(b'<!doctype html>\n<meta name="generator" content="kafkatap 1">')
        path.write_bytes(b"<!doctype html>\nmine")
        with pytest.raises(FileExistsError, match="say --overwrite"):
            made.publish()
    assert path.read_bytes() == b"<!doctype html>\nmine"
    assert os.listdir(tmp_path) == ["page.html"]


def test_a_recording_is_no_copy(tmp_path: Path) -> None:
    """Packets that `live` recorded are nowhere else."""
    path = tmp_path / "a.pcapng"
    path.write_bytes(pcapng_bytes(PACKETS))
    for program, is_copy in ((b"kafkatap 0.1.0", False), (b"kafkatap 0.1.0 (extract)", True)):
        path.write_bytes(b"\n\r\r\n...." + program + b"\0\0")
        assert found_at(str(path)) == (PCAPNG, is_copy, b"")
    check_output(str(path), [])


def test_keys_are_added_to_key_logs_only(tmp_path: Path) -> None:
    path = tmp_path / "keys.log"
    path.write_bytes(b"# mine\nCLIENT_RANDOM " + b"ab" * 32 + b" " + b"cd" * 48 + b"\n")
    check_replaceable(str(path), KEY_LOG, overwrite=True)
    path.write_text("my notes\n")
    with pytest.raises(FileExistsError, match="this is a text, and a TLS key log does not replace it"):
        check_replaceable(str(path), KEY_LOG, overwrite=True)
    check_replaceable(str(path), TEXT, overwrite=False, line=b"my notes")


def test_all_packets_are_recorded_to_captures_only(tmp_path: Path) -> None:
    """The file of an earlier run is renamed, and removed when the files are too large."""
    path = tmp_path / "all.pcap"
    path.write_text("my notes\n")
    with pytest.raises(FileExistsError, match="this is a text, and no capture"):
        Recorder(path)
    assert path.read_text() == "my notes\n"


def test_an_archive_for_executors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kafkatap.tar.gz"
    path.write_bytes(gzip.compress(b"mine"))
    assert pack([str(path)]) == 2
    assert "this is a gzip file that kafkatap may not have written" in capsys.readouterr().err
    path.write_bytes(b"")
    with path.open("wb") as file, gzip.GzipFile("kafkatap.tar", "wb", fileobj=file) as zipped:
        zipped.write(b"ours")
    check_replaceable(str(path), "a gzip file", overwrite=False)
