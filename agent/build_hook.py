"""Compile the agent's Java sources to `agent.jar` when the package is built: a hook of hatchling. Needs a JDK."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: The oldest Java whose JVM loads the classes.
RELEASE = 11
_PACKAGE = "kafkatap.keys"


def write_jar(path: Path, classes: Path, manifest: str) -> None:
    """Write a jar that is the same for the same classes: `jar` writes the time, and files in the order of the disk."""
    files = {str(each.relative_to(classes)): each.read_bytes() for each in sorted(classes.rglob("*.class"))}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as jar:
        for name, content in {"META-INF/MANIFEST.MF": manifest.encode(), **files}.items():
            jar.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


class AgentHook(BuildHookInterface):  # type: ignore[type-arg]
    """What hatchling calls before and after it builds a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the jar: in the checkout, for an editable installation, or for the wheel."""
        if shutil.which("javac") is None:
            raise RuntimeError(
                "kafkatap-keys is compiled by a JDK, 11 or later (Debian: apt-get install default-jdk-headless)"
            )
        self._folder = Path(tempfile.mkdtemp(prefix="kafkatap-keys-"))
        is_editable = version == "editable"
        jar = Path(self.root, "kafkatap_keys/agent.jar") if is_editable else self._folder / "agent.jar"
        classes = self._folder / "classes"
        texts = {path.name: path.read_text() for path in sorted(Path(self.root, "java").rglob("*.java"))}
        # A JVM keeps classes until it ends: those of another version have another name.
        digest = hashlib.sha256("".join(texts.values()).encode()).hexdigest()[:8]
        sources = [self._folder / name for name in texts]
        for path in sources:
            path.write_text(texts[path.name].replace(f"package {_PACKAGE};", f"package {_PACKAGE}.v{digest};"))
        self._call("javac", "--release", str(RELEASE), "-d", str(classes), *map(str, sources))
        write_jar(jar, classes, f"Manifest-Version: 1.0\nAgent-Class: {_PACKAGE}.v{digest}.Agent\n\n")
        if not is_editable:
            build_data["force_include"][str(jar)] = "kafkatap_keys/agent.jar"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was made on the way."""
        shutil.rmtree(self._folder, ignore_errors=True)

    @staticmethod
    def _call(*command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
