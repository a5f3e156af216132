"""The data directory: refuses what it cannot use, says why, and changes nothing then."""

import os
import subprocess
import sys

import pytest

from borzoi.log.directory import FORMAT, DataDirectory, DataDirectoryError, wipe


def opened(path):
    directory = DataDirectory(path)
    directory.open()
    return directory


def test_a_new_directory_is_made_with_its_parents(tmp_path):
    directory = opened(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b" / "format").read_text() == f'{{"format": {FORMAT}}}\n'
    assert directory.metadata.is_dir()
    assert directory.streams.is_dir()
    directory.close()
    opened(tmp_path / "a" / "b").close()


def test_a_second_server_is_refused_and_told_who_is_there(tmp_path):
    first = opened(tmp_path)
    with pytest.raises(DataDirectoryError, match=f"in use by another server.*{os.getpid()}"):
        opened(tmp_path)
    with pytest.raises(DataDirectoryError, match="in use"):
        wipe(tmp_path)
    code = (
        "import sys; from pathlib import Path; from borzoi.log.directory import *\n"
        "try: DataDirectory(Path(sys.argv[1])).open()\n"
        "except DataDirectoryError as error: print(error)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "in use by another server" in answer.stdout
    first.close()
    opened(tmp_path).close()


def test_a_newer_format_is_refused_and_nothing_changed(tmp_path):
    (tmp_path / "format").write_text(f'{{"format": {FORMAT + 1}}}')
    with pytest.raises(
        DataDirectoryError, match=rf"format {FORMAT + 1}.*newer Borzoi.*up to format {FORMAT}"
    ):
        opened(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["format", "lock"]
    with pytest.raises(DataDirectoryError, match="newer"):
        wipe(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 14,
        b"{",
        b"[]",
        b"7",
        b"{}",
        b'{"format": "1"}',
        b'{"format": 0}',
        b'{"format": true}',
        b"\xff",
    ],
)
def test_an_unreadable_format_file_is_refused_with_its_name(tmp_path, content):
    (tmp_path / "format").write_bytes(content)
    with pytest.raises(DataDirectoryError, match="format"):
        opened(tmp_path)
    assert (tmp_path / "format").read_bytes() == content
    (tmp_path / "format").unlink()
    opened(tmp_path).close()


def test_a_path_that_cannot_be_used_is_an_error_with_text(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirectoryError, match="cannot use data directory"):
        opened(tmp_path / "file")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "format").mkdir()
    with pytest.raises(DataDirectoryError, match="cannot use data directory"):
        opened(tmp_path / "data")
    (tmp_path / "data" / "format").rmdir()
    opened(tmp_path / "data").close()


def test_partitions_are_found_in_order_of_their_ids(tmp_path):
    directory = opened(tmp_path)
    for ids in ((10, 0, 0), (2, 1, 0), (2, 0, 11), (2, 0, 3)):
        directory.partition(*ids).mkdir(parents=True)
    for stranger in ("x", "007", "-1", "٣"):
        (directory.streams / stranger / "topics" / "0" / "partitions" / "0").mkdir(parents=True)
    (directory.streams / "5").write_text("a file")
    assert [place[:3] for place in directory.found()] == [(2, 0, 3), (2, 0, 11), (2, 1, 0), (10, 0, 0)]
    assert all(place.path.is_dir() for place in directory.found())
    assert [found[:2] for found in directory.found_topics()] == [(2, 0), (2, 1), (10, 0)]
    assert [found[0] for found in directory.found_streams()] == [2, 10]
    directory.close()


def test_what_is_set_aside_keeps_its_content_and_never_replaces_another(tmp_path):
    directory = opened(tmp_path)
    targets = []
    for text in ("one", "two"):
        path = directory.partition(1, 2, 3)
        path.mkdir(parents=True)
        (path / "file").write_text(text)
        targets.append(directory.set_aside(path))
    assert [(target / "file").read_text() for target in targets] == ["one", "two"]
    assert list(directory.found()) == []
    directory.close()


def test_wiping_leaves_a_directory_like_new(tmp_path):
    directory = opened(tmp_path)
    directory.partition(1, 2, 3).mkdir(parents=True)
    directory.set_aside(directory.partition(1, 2, 3))
    directory.close()
    wipe(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    opened(tmp_path).close()
