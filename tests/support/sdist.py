"""Source distributions, fetched and unpacked but never built: the official test suites live in them.

`pip download --no-binary` would run the build backend to learn the metadata and so needs a compiler. Only the
archive is wanted here, so it is looked up on the index page that pip itself is configured to use, fetched
with pip's own session (proxies, certificates and credentials included) and checked against the SHA-256 that
the page gives for it.
"""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from support.clients import OfficialClient
from support.paths import CACHE, exclusive

FETCH_DEADLINE_S = 300
FETCHER = Path(__file__).with_name("fetch_archive.py")


def unpacked_sdist(client: OfficialClient) -> Path:
    """The root directory of the unpacked source distribution of exactly this client release."""
    name = f"{client.package.replace('-', '_')}-{client.version}"
    home = CACHE / "sdists"
    root = home / name
    with exclusive(home / f"{name}.lock"):
        if not root.exists():
            archive = home / f"{name}.tar.gz"
            _fetch(client, archive)
            unfinished = home / f"{name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            with tarfile.open(archive) as tar:
                tar.extractall(unfinished, filter="data")
            (unfinished / name).rename(root)
            unfinished.rmdir()
            archive.unlink()
    return root


def _fetch(client: OfficialClient, archive: Path) -> None:
    command = [str(client.python), str(FETCHER), client.package, archive.name, str(archive)]
    done = subprocess.run(
        command,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=FETCH_DEADLINE_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"fetching {archive.name} failed:\n{done.stdout}{done.stderr}")
