"""What makes a release: the same bytes twice, checks of the version, the unit of the package, the image's command."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkatap.commands.command_parser import build_parser
from kafkatap.kernels import library, make_library, platforms
from tests.support.wheel import ROOT, run


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The modules in `release`."""
    monkeypatch.syspath_prepend(ROOT / "release")
    import make_deb
    import make_image
    import make_release
    import third_parties

    return {module.__name__: module for module in (make_deb, make_image, make_release, third_parties)}


@pytest.mark.skipif(sys.platform != "linux", reason="sdists are unpacked elsewhere as they are here")
def test_a_wheel_that_is_built_elsewhere_has_the_same_bytes(built: tuple[Path, Path], tmp_path: Path) -> None:
    """From another folder. Objects of kernels are kept; `make_release.py` compiles them again."""
    (tmp_path / "elsewhere").mkdir()
    run("tar", "-xf", built[0], "-C", tmp_path / "elsewhere", cwd=tmp_path)
    (source,) = (tmp_path / "elsewhere").iterdir()
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path, source, cwd=tmp_path)
    assert (tmp_path / built[1].name).read_bytes() == built[1].read_bytes()


@pytest.mark.skipif(platforms.compiler() is None, reason="no kernels are compiled here")
def test_kept_objects_make_the_same_library_and_the_same_list_of_sources(tmp_path: Path) -> None:
    """What compiles them is imported only where one is compiled. In processes of their own, as builds run."""
    made = []
    for name in ("compiled", "kept"):
        run(sys.executable, "-m", make_library.__name__, tmp_path / name, "tests.kernels.small", cwd=ROOT,
            KAFKATAP_CACHE=str(tmp_path / "cache"), PYTHONPATH=str(ROOT))  # fmt: skip
        made.append({each: (tmp_path / name / each).read_bytes() for each in (library.LIBRARY, library.SOURCES)})
    assert made[0] == made[1]


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")
def test_the_agent_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    wheels = []
    for name in ("first", "second"):
        shutil.copytree(ROOT / "agent", tmp_path / name, ignore=shutil.ignore_patterns("agent.jar", "__pycache__"))
        run(sys.executable, "-m", "build", "--no-isolation", "--wheel", tmp_path / name, cwd=tmp_path)
        (wheel,) = (tmp_path / name / "dist").iterdir()
        wheels.append(wheel.read_bytes())
    assert wheels[0] == wheels[1]


def test_a_release_needs_a_date_and_the_same_version_everywhere(
    tools: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tools["make_release"]
    monkeypatch.setattr(made, "ROOT", tmp_path)
    for name in ("pyproject.toml", "agent/pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('[project]\nversion = "0.2.0"\n')
    change = tmp_path / "CHANGELOG.md"
    change.write_text("# Changes\n\n## 0.2.0 (2026-12-24)\n\n## 0.1.0 (2026-12-01)\n")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    with pytest.raises(made.ReleaseError, match="not committed"):
        made.checked_version(is_draft=False)
    made.git("add", ".")
    made.git("-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qm", "all")
    assert made.checked_version(is_draft=False) == "0.2.0"
    change.write_text("# Changes\n\n## 0.2.0 (not yet released)\n")
    assert made.checked_version(is_draft=True) == "0.2.0"
    with pytest.raises(made.ReleaseError, match=r"no date for 0\.2\.0, but: not yet released"):
        made.checked_version(is_draft=False)
    (tmp_path / "agent/pyproject.toml").write_text('[project]\nversion = "0.1.0"\n')
    with pytest.raises(made.ReleaseError, match=r"agent/pyproject\.toml has version 0\.1\.0"):
        made.checked_version(is_draft=True)


def test_builds_that_differ_are_no_release(tools: dict[str, Any], tmp_path: Path) -> None:
    made = tools["make_release"]
    files = [tmp_path / name / "one.whl" for name in ("first", "second")]
    for path in files:
        path.parent.mkdir()
        path.write_text("the same")
    made.compare([files[0]], [files[1]])
    files[1].write_text("another")
    with pytest.raises(made.ReleaseError, match=r"two builds differ: one\.whl"):
        made.compare([files[0]], [files[1]])
    made.write_sums(tmp_path / "first")
    assert run("sha256sum", "--check", "SHA256SUMS", cwd=tmp_path / "first") == "one.whl: OK\n"


def test_the_package_has_the_unit_of_the_documents(tools: dict[str, Any]) -> None:
    lines = tools["make_deb"].unit().splitlines()
    assert "User=kafkatap" in lines
    assert "AmbientCapabilities=CAP_NET_RAW" in lines
    assert not any(line.startswith("DynamicUser") for line in lines)
    assert any(line.startswith("ExecStart=/usr/bin/kafkatap live ") for line in lines)
    own = set(tools["make_deb"].UNIT.read_text(encoding="utf-8").splitlines())
    assert len([line for line in lines if line not in own]) == 4


def test_third_parties_have_licences(tools: dict[str, Any]) -> None:
    third = tools["third_parties"]
    site = Path(pytest.__file__).parents[1]
    found = {each.name: each for each in third.others(site)}
    assert third.licence(found["numpy"]).startswith("BSD-3-Clause")
    text = "\n".join(third.licences([found["numpy"], found["lark"]]))
    assert "NumPy Developers" in text
    assert "Erez Shinan" in text
    assert not any(name.startswith("kafkatap") for name in found)


def test_the_image_runs_a_command_that_there_is(tools: dict[str, Any]) -> None:
    image = tools["make_image"]
    assert image.ENTRYPOINT == ("kafkatap",)
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(list(image.CMD))
    assert ended.value.code == 0
