"""The directory of the command line's own files, `$IGGY_HOME` or `~/.iggy`, shared with Iggy's command line.

    contexts.toml         servers and logins by name          borzoi.cli.contexts_file
    .active_context       the name of the one in use          borzoi.cli.contexts_file
    borzoi_tokens.json    sessions and stored tokens          borzoi.cli.tokens_file
    .borzoi_lock          held while one of them is changed

They hold secrets: a file that is written can be read by its owner only, whatever it was before. A file is
replaced as a whole, so that there is always the old one or the new one. Whoever changes one holds the lock
from reading to writing, or two commands at the same time would lose what one of them wrote.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from borzoi.model.errors import BorzoiError

HOME_VARIABLE = "IGGY_HOME"

_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600


class HomeFileError(BorzoiError, text="A file of the command line cannot be used"):
    """The detail names the file, and what to do."""


def home() -> Path:
    given = os.environ.get(HOME_VARIABLE)
    if given:
        return Path(given)
    try:
        return Path.home() / ".iggy"
    except RuntimeError:
        raise HomeFileError(f"this user has no home directory; set {HOME_VARIABLE}") from None


def read(name: str) -> str | None:
    """The content of a file; None if there is none."""
    path = home() / name
    try:
        return path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise HomeFileError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise HomeFileError(f"{path} is no text; move it away and start anew") from None


def replace(name: str, content: str) -> None:
    """Put a file in place. A symbolic link stays one; what it names is replaced."""
    path = home() / name
    try:
        target = Path(os.path.realpath(path))
        temporary = target.with_name(f"{target.name}.{os.getpid()}.new")
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                os.fchmod(fd, _FILE_MODE)
                file.write(content)
                file.flush()
                os.fsync(fd)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise HomeFileError(f"{path} cannot be written: {error.strerror}") from error


def remove(name: str) -> None:
    path = home() / name
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise HomeFileError(f"{path} cannot be removed: {error.strerror}") from error


@contextmanager
def locked() -> Iterator[None]:
    """For a change: makes the directory if there is none, and keeps other commands out."""
    import fcntl

    path = home() / ".borzoi_lock"
    try:
        path.parent.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
    except OSError as error:
        raise HomeFileError(f"{path} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
