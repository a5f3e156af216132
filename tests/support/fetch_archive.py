"""Fetches one archive of one package from the index that pip is configured to use.

Run by the interpreter of a client environment, because it needs pip: `fetch_archive.py PACKAGE FILE TARGET`.
The index address and the session come from pip's own options, so no address is written down here.
"""

import hashlib
import html
import re
import sys
from pathlib import Path
from urllib.parse import urldefrag, urljoin

from pip._internal.commands import create_command

HTML_PAGE = {"Accept": "text/html"}


def fetch(package: str, file: str, target: Path) -> None:
    command = create_command("download")
    with command.main_context():
        options, _ = command.parse_args([package])
        session = command.get_default_session(options)
        page_url = f"{options.index_url.rstrip('/')}/{package}/"
        page = session.get(page_url, headers=HTML_PAGE)
        page.raise_for_status()
        link, fragment = archive_link(page.text, file, page.url)
        answer = session.get(link)
        answer.raise_for_status()
        kind, _, expected = fragment.partition("=")
        if kind != "sha256" or hashlib.sha256(answer.content).hexdigest() != expected:
            sys.exit(f"{file} does not have the digest its index page promises: {fragment!r}")
        unfinished = target.with_name(f"{target.name}.part")
        unfinished.write_bytes(answer.content)
        unfinished.replace(target)


def archive_link(page: str, file: str, page_url: str) -> tuple[str, str]:
    """The absolute address of the archive and the fragment that carries its digest."""
    for reference in re.findall(r'href="([^"]+)"', page):
        link, fragment = urldefrag(urljoin(page_url, html.unescape(reference)))
        if link.rsplit("/", 1)[-1] == file:
            return link, fragment
    sys.exit(f"the index has no {file}")


if __name__ == "__main__":
    fetch(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
