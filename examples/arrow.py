"""A topic as an Arrow table: by offsets, by time, batch by batch, and in other libraries.

Start a server (`borzoi server`), then run `python examples/arrow.py [connection string]`. Needs pyarrow
(`pip install 'borzoi[arrow]'`).
"""

import datetime as dt
import sys

from borzoi import Client, SendMessage
from borzoi.client.arrow import topic_batches, topic_to_arrow
from borzoi.model.errors import AlreadyExists

SERVER = "iggy://iggy:iggy@127.0.0.1:8090"


def main(server: str = SERVER) -> None:
    with Client(server) as client:
        try:
            client.create_stream(name="weather")
            client.create_topic(stream="weather", name="readings", partitions_count=2)
        except AlreadyExists as error:
            print(error)
        begin = dt.datetime.now(dt.UTC)
        for partition in range(2):
            messages = [
                SendMessage(f"{20 + number % 5}.5", headers={"sensor": f"s{partition}"})
                for number in range(1000)
            ]
            client.send_messages("weather", "readings", partition, messages)

        # Everything that is there now, or a range: an int is an offset, a datetime is a time.
        table = topic_to_arrow(client, "weather", "readings", start=begin).table
        print(table.schema.names)
        print("messages:", table.num_rows)

        # Payloads are binary; what is in them is for you to say.
        degrees = table["payload"].cast("string").cast("float64")
        print("mean:", degrees.to_numpy().mean())

        # The same without holding everything in memory, and with fewer columns.
        size_bytes = 0
        for batch in topic_batches(client, "weather", "readings", start=begin, columns=["payload"]):
            size_bytes += batch.nbytes
        print("bytes:", size_bytes)

        # In whatever is installed: .polars(), .pandas(), .duckdb()
        first = topic_to_arrow(client, "weather", "readings", partitions=[0], end=3)
        print("first:", [payload.decode() for payload in first.table["payload"].to_pylist()])


if __name__ == "__main__":
    main(*sys.argv[1:])
