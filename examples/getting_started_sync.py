"""A consumer group that shares a topic's partitions, without asyncio.

Start a server (`borzoi server`), then run `python examples/getting_started_sync.py [connection string]`.
"""

import sys

from borzoi import Client, Partitioning
from borzoi.model.errors import AlreadyExists

SERVER = "iggy://iggy:iggy@127.0.0.1:8090"


def main(server: str = SERVER) -> None:
    with Client(server) as client:
        try:
            client.create_stream(name="payments")
            client.create_topic(stream="payments", name="received", partitions_count=2)
            client.create_consumer_group(stream="payments", topic="received", name="ledger")
        except AlreadyExists as error:
            print(error)
        client.join_consumer_group(stream="payments", topic="received", consumer_group="ledger")

        for amount in (10, 20, 30, 40):
            client.send_messages("payments", "received", Partitioning.balanced(), [f"{amount} EUR"])

        # A member gets the next of its partitions with every poll; two empty polls mean that both are read.
        empty = 0
        while empty < 2:
            messages = client.poll_messages(stream="payments", topic="received")
            empty = 0 if messages else empty + 1
            for message in messages:
                print(
                    f"partition {message.partition_id}, offset {message.offset}: {message.payload.decode()}"
                )


if __name__ == "__main__":
    main(*sys.argv[1:])
