"""The repository's own rules, checked on the repository itself."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from borzoi.broker.handlers import HANDLERS
from borzoi.model import limits
from borzoi.server.config import load
from borzoi.wire.commands import COMMANDS
from support.paths import REPOSITORY

SOURCE = sorted((REPOSITORY / "src").rglob("*.py"))
TESTS = sorted((REPOSITORY / "tests").rglob("*.py"))
LINES_MAX = 500

# Modules that may be longer, and why.
LONG_MODULES = {
    "borzoi/model/errors.py": "one table with a row for each of the protocol's 240 codes",
}

# Written in two parts, or this file would break its own rules.
MARKERS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:wo" + r"rk|ho" + r"me|Us" + r"ers|ro" + r"ot|mn" + r"t)/\w")
VAGUE_NAMES = {"utils", "util", "helper", "helpers", "manager", "common", "misc"}


def name_of(path: Path) -> str:
    return path.relative_to(REPOSITORY / "src").as_posix()


def tracked_texts() -> list[Path]:
    """Every text file that is, or is about to be, part of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:  # a source archive has no history
        return [*SOURCE, *TESTS]
    suffixes = {".py", ".md", ".toml", ".txt", ".cfg", ".yml", ".yaml", ".sh", ""}
    paths = [REPOSITORY / line for line in listed.stdout.splitlines()]
    return [path for path in paths if path.suffix in suffixes and path.is_file()]


@pytest.mark.parametrize("path", SOURCE, ids=name_of)
def test_every_module_says_what_it_is_for(path):
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", SOURCE, ids=name_of)
def test_no_module_grows_too_long_without_a_reason(path):
    lines = len(path.read_text().splitlines())
    if name_of(path) in LONG_MODULES:
        assert LONG_MODULES[name_of(path)]
    else:
        assert lines <= LINES_MAX


def test_the_list_of_long_modules_is_not_longer_than_needed():
    known = {name_of(path) for path in SOURCE}
    assert set(LONG_MODULES) <= known


@pytest.mark.parametrize("path", SOURCE, ids=name_of)
def test_names_of_modules_say_something(path):
    assert not VAGUE_NAMES.intersection(path.relative_to(REPOSITORY / "src").with_suffix("").parts)


def test_nothing_is_left_for_later():
    found = [
        f"{path.relative_to(REPOSITORY)}:{number}"
        for path in tracked_texts()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if MARKERS.search(line)
    ]
    assert found == []


def test_nothing_knows_the_machine_it_was_written_on():
    found = [
        f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()}"
        for path in tracked_texts()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if MACHINE_PATHS.search(line)
    ]
    assert found == []


def test_every_command_has_a_handler_and_every_handler_a_command():
    logins = {"LoginUser", "LoginWithToken"}
    wanted = {command.request for command in COMMANDS if command.request.__name__ not in logins}
    assert set(HANDLERS) == wanted


def test_every_limit_is_enforced_somewhere():
    assert load(path=None, env={}, flags={}).config.limits.max_frame_bytes == limits.FRAME_BYTES_DEFAULT
    names = [name for name in vars(limits) if name.isupper() and name != "FRAME_BYTES_DEFAULT"]
    text = "\n".join(path.read_text() for path in SOURCE if path.name != "limits.py")
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_tests_do_not_share_names():
    """They are imported without packages, so two of one name would hide each other."""
    names = [path.name for path in TESTS if path.name.startswith("test_")]
    assert len(names) == len(set(names))
