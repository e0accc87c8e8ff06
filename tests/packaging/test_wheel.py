"""The wheel and the sdist hold what they should and work where nothing else of the project is."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from kafkatap.commands.command_parser import COMMANDS
from kafkatap.commands.completion.shell_files import SCRIPTS
from tests.spark.conftest import missing
from tests.support.wheel import ROOT, run

PACKAGES = ("kafkatap", "kafkatap/kernels", "kafkatap/reassembly", "kafkatap/dissector", "kafkatap/reports")


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's contents alone; what it depends on comes from this interpreter."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(built[1]) as wheel:
        wheel.extractall(site)
    return site


@pytest.fixture(scope="module")
def without_numba(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment with the wheel and what it depends on, without numba and llvmlite."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    left_out = ("numba", "llvmlite", "kafkatap", "_kafkatap", "__pycache__", "pip")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(left_out) and path.suffix != ".pth":
            (site / path.name).symlink_to(path)
    for path in installed.iterdir():
        (site / path.name).symlink_to(path)
    return python


def seconds(*command: str | Path, cwd: Path, **environment: str) -> float:
    """The processor time of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(*command, cwd=cwd, **environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


on_x86_linux = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="kernels come compiled for Linux on x86-64"
)


@on_x86_linux
def test_the_wheel_has_compiled_kernels(built: tuple[Path, Path]) -> None:
    assert built[1].name.endswith("-py3-none-manylinux_2_17_x86_64.musllinux_1_1_x86_64.whl")
    names = set(zipfile.ZipFile(built[1]).namelist())
    assert {f"kafkatap/kernels/compiled/{name}" for name in ("kernels.so", "kernels.json", "sources.txt")} <= names
    assert not any(name.endswith(("build_hook.py", "none.txt")) for name in names)
    (metadata,) = (name for name in names if name.endswith("/METADATA"))
    for line in zipfile.ZipFile(built[1]).read(metadata).decode().splitlines():
        if line.startswith(("Requires-Dist: numba", "Requires-Dist: llvmlite")):
            assert "; extra == " in line


@on_x86_linux
def test_without_numba_the_first_report_compiles_nothing_and_takes_no_longer(
    without_numba: Path, samples: Path, tmp_path: Path
) -> None:
    kafkatap = (without_numba, "-m", "kafkatap", "report", samples / "apache-4.3.pcap.zst")
    clean = {"HOME": str(tmp_path), "XDG_CACHE_HOME": "", "KAFKATAP_CACHE": "", "KAFKATAP_KERNELS": ""}
    done = subprocess.run(
        [*map(str, kafkatap), "-v", "--ledger"], env={**os.environ, **clean, "PYTHONPATH": ""}, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "kernels: compiled with the package" in done.stderr
    assert "compiling" not in done.stderr
    assert "The parts of each section add up" in done.stdout
    code = "import importlib.util as u; print(u.find_spec('numba'), u.find_spec('llvmlite'))"
    assert run(without_numba, "-c", code, cwd=tmp_path) == "None None\n"
    times: dict[str, list[float]] = {"first": [], "later": []}
    for number in range(4):
        home = tmp_path / str(number)
        home.mkdir()
        for which in ("first", "later"):
            times[which].append(seconds(*kafkatap, cwd=tmp_path, **clean | {"HOME": str(home)}))
    assert min(times["first"]) <= 1.5 * min(times["later"])


@on_x86_linux
@pytest.mark.parametrize("arguments", [
    ["show", "-n", "3", "CAPTURE"], ["records", "-n", "3", "CAPTURE"], ["upgrade-check", "CAPTURE"],
    ["doctor", "CAPTURE"], ["compare", "CAPTURE", "CAPTURE"], ["report", "--jobs", "2", "--sections", "all", "CAPTURE"],
    ["extract", "--anonymize", "--api", "Metadata", "CAPTURE", "-o", "part.pcapng"],
], ids=lambda arguments: str(arguments[0]))  # fmt: skip
def test_without_numba_every_command_finds_its_kernels(
    without_numba: Path, samples: Path, tmp_path: Path, arguments: list[str]
) -> None:
    """Whatever calls a kernel first: the store knows them all."""
    words = [str(samples / "apache-2.8.pcap.zst") if word == "CAPTURE" else word for word in arguments]
    run(without_numba, "-m", "kafkatap", *words, cwd=tmp_path, KAFKATAP_CACHE=str(tmp_path / "cache"))
    assert not (tmp_path / "cache").exists()


@on_x86_linux
def test_without_numba_a_module_that_reads_packets_alone_finds_its_kernels(
    without_numba: Path, samples: Path, tmp_path: Path
) -> None:
    code = "import sys; from kafkatap.captures.capture_reader import CaptureReader as C; r = C(sys.argv[1], 65536)\n"
    code += "print(r.fill(), int(r.packets['ts'][r.position]))"
    said = run(without_numba, "-c", code, samples / "apache-2.8.pcap.zst", cwd=tmp_path)
    filled, first = said.split()
    assert filled == "True"
    assert int(first) > 1_500_000_000 * 10**9


@on_x86_linux
def test_without_numba_a_stream_of_captures_reads_them(without_numba: Path, samples: Path, tmp_path: Path) -> None:
    """`kafkatap spark --checkpoint`, twice: the driver orders captures by their first packets."""
    if why := missing():
        pytest.skip(why)
    (tmp_path / "in").mkdir()
    shutil.copy(samples / "apache-0.8.2.pcap.zst", tmp_path / "in" / "a.pcap.zst")
    words = ("spark", tmp_path / "in", "-o", tmp_path / "lake", "--checkpoint", tmp_path / "state", "--finish")
    said = run(without_numba, "-m", "kafkatap", *words, "--no-progress", cwd=tmp_path)
    assert "Produce" in said
    assert list((tmp_path / "lake").rglob("*.parquet"))


@on_x86_linux
def test_without_numba_an_edited_kernel_is_not_run(
    without_numba: Path, installed: Path, tmp_path: Path, samples: Path
) -> None:
    """One sentence says what to do."""
    path = installed / "kafkatap/reassembly/streams.py"
    before = path.read_text()
    path.write_text(before.replace("@kernel(", "@kernel(np.uint8, "))
    try:
        done = subprocess.run(
            [str(without_numba), "-m", "kafkatap", "report", str(samples / "apache-0.8.2.pcap.zst")],
            env={**os.environ, "PYTHONPATH": "", "KAFKATAP_CACHE": str(tmp_path / "cache")}, cwd=tmp_path,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        path.write_text(before)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        "kafkatap: its compiled kernels cannot be used: some have changed since they were compiled"
    )
    assert " -m pip install 'llvmlite" in done.stderr


def test_wheel_holds_the_packages_and_their_data_and_nothing_else(built: tuple[Path, Path]) -> None:
    names = zipfile.ZipFile(built[1]).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"kafkatap"}
    for package in PACKAGES:
        assert f"{package}/__init__.py" in names
    assert "kafkatap/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    written = {f"kafkatap/{path.relative_to(ROOT)}" for path in (ROOT / "dissector").rglob("*.kmsg")}
    written |= {f"kafkatap/{path.relative_to(ROOT)}" for path in (ROOT / "dissector").rglob("*.tsv")}
    written |= {f"kafkatap/reports/rendering/html/{name}" for name in ("page.html.jinja", "style.css", "script.js")}
    assert written <= set(names)


def test_an_installation_has_manual_pages_and_completion_scripts(built: tuple[Path, Path], tmp_path: Path) -> None:
    """`man kafkatap-report` and completion work from the prefix that the package is installed into."""
    install = ("install", "-q", "--no-deps", "--no-index", "--ignore-installed")  # or pip removes the one of the venv
    run(sys.executable, "-m", "pip", *install, "--prefix", tmp_path, built[1], cwd=tmp_path)
    pages = {path.name for path in (tmp_path / "share/man/man1").iterdir()}
    assert pages == {"kafkatap.1", *(f"kafkatap-{name}.1" for name in COMMANDS)}
    for path in SCRIPTS.values():
        assert "no-progress" in (tmp_path / path).read_text(encoding="utf-8")
    extcap = tmp_path / "extcap"  # a copy in Wireshark's folder
    shutil.copy(tmp_path / "bin/kafkatap-extcap", extcap)
    (site,) = (path.parents[1] for path in tmp_path.rglob("kafkatap/__init__.py"))
    assert "{value=kafkatap-any}" in run(extcap, "--extcap-interfaces", cwd=tmp_path, PYTHONPATH=str(site))
    script = tmp_path / SCRIPTS["bash"]
    said = run("bash", "-c", f"source {script}; complete -p kafkatap", cwd=tmp_path)
    assert said.strip().endswith(" kafkatap")
    if shutil.which("man") is None:
        pytest.skip("man is not installed: the pages were not read by it")
    page = run("man", "-M", tmp_path / "share/man", "kafkatap-report", cwd=tmp_path, MANWIDTH="100", MANPAGER="cat")
    assert "--parquet DIR" in page
    assert "EXIT STATUS" in page


def test_sdist_holds_samples_tests_and_documents(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for wanted in ("README.md", "LICENSE", "CHANGELOG.md", "docs/ARCHITECTURE.md", "check", "try", ".ci/run"):
        assert wanted in names
    assert "samples/apache-4.3.pcap.zst" in names
    assert "tests/packaging/test_wheel.py" in names
    # The folders themselves, not the links to them.
    assert "dissector/messages/001_Fetch.kmsg" in names
    assert not any(name.startswith("kafkatap/dissector") for name in names)


def test_a_checkout_is_importable_as_it_stands(tmp_path: Path) -> None:
    """Without an installation: links lead to the folders at the top, and a wheel holds the same modules."""
    code = "import kafkatap.dissector as d, kafkatap.kernels as k; print(d.__file__, k.__file__)"
    said = run(sys.executable, "-c", code, cwd=ROOT)
    assert [Path(path).resolve() for path in said.split()] == [
        ROOT / f"{n}/__init__.py" for n in ("dissector", "kernels")
    ]


def test_it_imports_its_own_files_where_it_is_installed(installed: Path, tmp_path: Path) -> None:
    code = "import kafkatap as k, kafkatap.dissector as d; print(k.__file__, d.__file__)"
    said = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(installed))
    assert all(Path(path).is_relative_to(installed) for path in said.split())


def test_the_installed_copy_reports_on_a_sample(installed: Path, samples: Path, tmp_path: Path) -> None:
    """Its kernels are those that were built for the other tests, unless it lacks or changes any source of them."""
    command = [sys.executable, "-m", "kafkatap", "report", samples / "apache-0.8.2.pcap.zst"]
    assert "Produce" in run(*command, cwd=tmp_path, PYTHONPATH=str(installed), NO_COLOR="1")


def test_the_installed_copy_compiles_kernels(installed: Path, tmp_path: Path) -> None:
    """Small ones: the builder is there, and a process that finds no store starts it."""
    (tmp_path / "small.py").write_bytes((ROOT / "tests/kernels/small.py").read_bytes())
    code = "from kafkatap.kernels import store; store.use(['small'])\n"
    code += "import small; small.run(); print(store.open_folder())"
    cache, path = tmp_path / "cache", f"{installed}{os.pathsep}{tmp_path}"
    kept = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=path, KAFKATAP_CACHE=str(cache)).strip()
    assert Path(kept).parent == cache
    assert {"small.read_pairs.o", "small.spread.o"} <= {file.name for file in Path(kept).iterdir()}
