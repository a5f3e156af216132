"""The driver that the exactly-once tests kill: three queries that copy the same topic, each in its own way.

    copied      through the source and the sink, row by row
    piped       by `borzoi.spark.pipe`, with a function that changes nothing
    mirrored    by `borzoi.spark.pipe` without one: the server copies by itself

The only argument is a JSON object: connection, master, directory (of the checkpoints), rows (per trigger),
config (Spark's settings).
A query that fails is started again, from its checkpoint, as a supervisor would do. Standard output has a JSON
object for each thing that happens. Lines on standard input say what to do:

    go          start the queries; until then the process only gets ready, which takes most of its time
    finish      let the queries read what is there, then end with 0
"""

import json
import sys
import threading
from pathlib import Path

from pyspark.errors import PySparkException

from borzoi.spark import pipe, session

STREAM = "s"
SOURCE = "in"
TARGETS = ("copied", "piped", "mirrored")
FAILURES_MAX = 50  # in a row
PAUSE_S = 0.2


def say(event, **details):
    print(json.dumps({"event": event, **details}), flush=True)


class Queries:
    def __init__(self, spark, connection, directory, rows):
        self.spark = spark
        self.source = {
            "connection": connection,
            "stream": STREAM,
            "topic": SOURCE,
            "minPartitions": 4,
        }
        self.place = {"connection": connection, "stream": STREAM}
        self.directory = directory
        self.rows = rows

    def start(self, name, *, is_last):
        limits = {} if is_last else {"maxRowsPerTrigger": self.rows}
        trigger = {"availableNow": True} if is_last else {"processingTime": "0 seconds"}
        checkpoint = str(Path(self.directory, name))
        source = {**self.source, **limits, "group": f"query-{name}"}
        if name == "piped":
            return pipe(
                source,
                lambda rows: rows.select(["payload", "id"]),
                checkpoint=checkpoint,
                trigger=trigger,
                spark=self.spark,
                topic=name,
                batchRows=50,
                **self.place,
            )
        if name == "mirrored":
            return pipe(
                source, checkpoint=checkpoint, trigger=trigger, spark=self.spark, topic=name, **self.place
            )
        rows = self.spark.readStream.format("borzoi").options(**source).load()
        return (
            rows.writeStream.format("borzoi")
            .options(**self.place, topic=name, partitioning="partition", batchRows=50)
            .option("checkpointLocation", checkpoint)
            .trigger(**trigger)
            .start()
        )


class Supervised:
    """One query, started again when it fails. Queries are started by one thread: see `main`."""

    def __init__(self, queries, name):
        self._queries, self._name = queries, name
        self._query, self._is_last = None, False
        self._failures = 0
        self.is_done = False

    def look_after(self, *, is_last):
        if self.is_done:
            return
        try:
            if self._query is not None and is_last != self._is_last:
                self._query.stop()
                self._query = None
            if self._query is None:
                self._is_last = is_last
                self._query = self._queries.start(self._name, is_last=is_last)
                say("started", query=self._name)
            if self._query.awaitTermination(PAUSE_S):
                self.is_done = True
            elif self._query.lastProgress is not None:
                self._failures = 0
        except PySparkException as error:
            self._query = None
            self._failures += 1
            say("failed", query=self._name, error=str(error))
            if self._failures == FAILURES_MAX:
                raise


def warm_up(spark, connection):
    """Let Spark start its Python workers and load what they need."""
    options = {"connection": connection, "stream": STREAM, "topic": SOURCE}
    try:
        spark.read.format("borzoi").options(**options).load().count()
    except PySparkException as error:
        say("failed", query="warm up", error=str(error))


def main():
    given = json.loads(sys.argv[1])
    spark = session("chaos", given["master"], config=given["config"], log_level="ERROR")
    say("session", application=spark.sparkContext.applicationId)
    warm_up(spark, given["connection"])
    if not sys.stdin.readline():
        return
    is_finishing = threading.Event()

    def listen():
        if sys.stdin.readline():
            is_finishing.set()

    threading.Thread(target=listen, daemon=True).start()
    queries = Queries(spark, given["connection"], given["directory"], given["rows"])
    # All by this thread: in others Spark does not find sources that are written in Python.
    supervised = [Supervised(queries, name) for name in TARGETS]
    while not all(each.is_done for each in supervised):
        is_last = is_finishing.is_set()
        for each in supervised:
            each.look_after(is_last=is_last)
    spark.stop()
    say("done")


if __name__ == "__main__":
    main()
