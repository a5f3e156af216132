"""One Spark session for all tests that need a JVM, and what keeps them from seeing each other.

    spark           the session: local[2], two shuffle partitions, a small heap
    checkpoint      a directory of the test's own for a query's checkpoint, as the text Spark wants

Brokers come from Borzoi's own fixtures (`borzoi_server`, `borzoi`; docs/testing.md): they run in this
process, and Spark's workers reach them over the loopback. Queries that a test leaves behind are stopped after
it, and fail it; the JVM is gone before pytest is.
"""

import signal
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# pyspark and py4j leave sockets to the garbage collector, and pyspark uses what its dependencies deprecate;
# in these tests only, and for these modules only, that is not an error.
TOLERATED = (
    "ignore:unclosed <socket.*:ResourceWarning",
    "ignore:.*:DeprecationWarning:pyspark",
    "ignore:.*:FutureWarning:pyspark",
    "ignore:.*:UserWarning:pyspark",
    "ignore:.*:DeprecationWarning:py4j",
)
# The compiler that makes the fastest code is not worth its time in queries of a second.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1"


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            for tolerated in TOLERATED:
                item.add_marker(pytest.mark.filterwarnings(tolerated))


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory):
    """The session as it is; tests take `spark`, which also looks after their queries."""
    from borzoi.spark import session

    interrupts = signal.getsignal(signal.SIGINT)
    started = session(
        "borzoi tests",
        "local[2]",
        config={
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": JVM_OPTIONS,
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.streaming.stopTimeout": "30s",
            "spark.local.dir": tmp_path_factory.mktemp("spark"),
        },
        log_level="ERROR",
    )
    signal.signal(signal.SIGINT, interrupts)  # Spark's own would cancel jobs whenever a test is interrupted
    yield started
    end(started)


@pytest.fixture
def spark(spark_session):
    yield spark_session
    left = spark_session.streams.active
    for query in left:
        query.stop()
    assert not left, f"the test left {len(left)} queries running"


@pytest.fixture
def checkpoint(tmp_path):
    return str(tmp_path / "checkpoint")


def end(session):
    """Stop a session and wait for its JVM, which lives until its standard input is closed."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=60)
    SparkContext._gateway = SparkContext._jvm = None
