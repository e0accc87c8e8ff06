#!/usr/bin/env python3
"""Make an image for container engines of a package of Debian: python release/make_image.py DEB --out DIR. Needs root,
debootstrap, umoci and skopeo.

The package and what it depends on are installed in a bare system, which becomes the image's one layer. `podman load`
and `docker load` (25 or later) read the file. The image's user is `kafkatap`, which suffices for all commands but
`live`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bare_root import bare_root, inside, run
from make_deb import SUITES, release_time

ROOT = Path(__file__).resolve().parents[1]
USER = "kafkatap"
ENTRYPOINT = ("kafkatap",)
CMD = ("--help",)
#: Where it starts, and may write.
FOLDER = "/data"
#: What no command needs. Licences stay.
_REMOVED = ("var/lib/apt/lists", "var/cache", "var/log", "usr/share/man", "usr/share/locale", "usr/share/info", "tmp")
_CLEAN = f"""
rm -f /etc/apt/apt.conf.d/* /etc/resolv.conf /etc/pip.conf
find /usr/share/doc -type f ! -name copyright ! -name third-party-licences.gz -delete
mkdir -p {FOLDER} && chown {USER}: {FOLDER}
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="release/make_image.py", description=__doc__)
    parser.add_argument("deb", type=Path)
    parser.add_argument("--suite", choices=SUITES, default="bookworm", help="the Debian of the package (bookworm)")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder for it (dist)")
    parser.add_argument("--roots", type=Path, help="keep bare systems of Debian in this folder for later runs")
    options = parser.parse_args()
    try:
        image = make_image(options.deb, options.suite, options.out, options.roots)
    except subprocess.CalledProcessError as error:
        print(f"{error}\n{error.stdout}{error.stderr}", file=sys.stderr)
        return 1
    print(f"{image}: {image.stat().st_size / 1e6:.0f} MB")
    return 0


def make_image(deb: Path, suite: str, out: Path, roots: Path | None) -> Path:
    """Make kafkatap-VERSION-image.tar in the folder `out`, and return its path."""
    version = deb.name.split("_")[1].partition("-")[0]
    created = run("date", "-u", "-d", f"@{release_time()}", "+%Y-%m-%dT%H:%M:%SZ").strip()
    kept = None if roots is None else roots / "image"
    with bare_root(suite, kept, packages=("ca-certificates",)) as root, tempfile.TemporaryDirectory() as folder:
        shutil.copy(deb, root / "tmp/it.deb")
        inside(root, f"apt-get update -q && apt-get install -qy --no-install-recommends /tmp/it.deb; {_CLEAN}")
        for name in _REMOVED:
            for path in (root / name).iterdir():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        print(f"   {run('du', '-sm', root).split()[0]} MB unpacked")
        layout = Path(folder, "layout")
        image = f"{layout}:{version}"
        run("umoci", "init", "--layout", layout)
        run("umoci", "new", "--image", image)
        run("umoci", "insert", "--image", image, root, "/")
        settings = [f"--config.user={USER}", f"--config.workingdir={FOLDER}", f"--created={created}",
                    "--config.env=OPENBLAS_NUM_THREADS=1", "--config.env=PATH=/usr/bin:/bin:/usr/sbin:/sbin",
                    f"--config.label=org.opencontainers.image.version={version}",
                    "--config.label=org.opencontainers.image.licenses=Apache-2.0",
                    *(f"--config.entrypoint={word}" for word in ENTRYPOINT),
                    *(f"--config.cmd={word}" for word in CMD)]  # fmt: skip
        run("umoci", "config", "--no-history", "--image", image, *settings)
        out.mkdir(parents=True, exist_ok=True)
        archive = out / f"kafkatap-{version}-image.tar"
        archive.unlink(missing_ok=True)
        run("skopeo", "--insecure-policy", "copy", f"oci:{image}", f"oci-archive:{archive}:kafkatap:{version}")
    return archive


if __name__ == "__main__":
    sys.exit(main())
