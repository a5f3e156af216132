"""What test_cluster.py runs: a program on a cluster whose workers do not have the package.

The only argument is the directory of the workers' packages. The last line of standard output is a JSON object
with what was found. All in one program, because a cluster's session takes longer to start than to use.
"""

import json
import sys
import tempfile

from pyspark.sql import functions as f

from borzoi.spark import session
from borzoi.testing import Server

STREAM = "s"


class Live:
    """A query over a topic that gets messages while it runs."""

    def __init__(self, frame, mode, directory, name):
        self._query = (
            frame.writeStream.format("memory")
            .queryName(name)
            .outputMode(mode)
            .option("checkpointLocation", f"{directory}/{name}")
            .start()
        )
        self._spark, self._name = frame.sparkSession, name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._query.stop()

    def rows(self):
        """What the query has given out, once it has read all there is."""
        self._query.processAllAvailable()
        return sorted(map(list, self._spark.table(self._name).collect()))


def cluster(packages):
    options = "-XX:TieredStopAtLevel=1"
    return session(
        "cluster",
        "local-cluster[2,1,1024]",
        config={
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": options,
            "spark.executor.extraJavaOptions": options,
            "spark.executorEnv.PYTHONPATH": packages,
        },
        log_level="ERROR",
    )


def places(spark):
    """From where the workers have the package."""

    def find(batches):
        import pyarrow as pa

        import borzoi.spark

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"place": [borzoi.spark.__file__]})

    found = spark.range(4).repartition(2).mapInArrow(find, "place string").collect()
    return sorted({row.place for row in found})


def batch(spark, place, client):
    client.send_messages(STREAM, "words", 0, ["one two"])
    client.send_messages(STREAM, "words", 1, ["two"])
    rows = spark.read.format("borzoi").options(**place, topic="words").load().collect()
    return sorted([row.partition, bytes(row.payload).decode()] for row in rows)


def word_count(spark, place, client, directory):
    lines = spark.readStream.format("borzoi").options(**place, topic="words", columns="payload").load()
    words = lines.select(f.explode(f.split(f.col("payload").cast("string"), " ")).alias("word"))
    with Live(words.groupBy("word").count(), "complete", directory, "counts") as query:
        first = query.rows()
        client.send_messages(STREAM, "words", 1, ["three two", "one"])
        return [first, query.rows()]


def windows(spark, place, client, directory):
    def send(partition, *readings):
        payloads = [json.dumps({"at": f"2026-01-01T00:{at}Z", "n": n}) for at, n in readings]
        client.send_messages(STREAM, "readings", partition, payloads)

    options = {"topic": "readings", "format": "json", "schema": "at timestamp, n long", "columns": "none"}
    sums = (
        spark.readStream.format("borzoi")
        .options(**place, **options)
        .load()
        .withWatermark("at", "10 seconds")
        .groupBy(f.window("at", "1 minute"))
        .agg(f.sum("n").alias("n"))
        .select(f.date_format("window.start", "mm").alias("minute"), "n")
    )
    send(0, ("00:01", 1), ("00:59", 2))
    send(1, ("00:30", 4), ("01:05", 8))
    with Live(sums, "append", directory, "sums") as query:
        found = [query.rows()]  # the watermark is at 00:55, the first minute is not over
        send(0, ("00:58", 16), ("01:30", 32))
        found.append(query.rows())
        send(1, ("00:59", 64), ("02:30", 128))  # the first of them is too late
        found.append(query.rows())
        return found


def main():
    spark = cluster(sys.argv[1])
    with (
        tempfile.TemporaryDirectory() as directory,
        Server(memory=True) as server,
        server.client() as client,
    ):
        client.create_stream(STREAM)
        client.create_topic(STREAM, "words", 2)
        client.create_topic(STREAM, "readings", 2)
        place = {"connection": server.connection_string, "stream": STREAM}
        found = {
            "application": spark.sparkContext.applicationId,
            "places": places(spark),
            "batch": batch(spark, place, client),
            "word count": word_count(spark, place, client, directory),
            "windows": windows(spark, place, client, directory),
        }
        spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
