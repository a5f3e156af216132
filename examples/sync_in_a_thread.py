"""Without asyncio: one thread sends, another works on what comes, and a message that fails is put aside.

Start a server (`borzoi server`), then run `python examples/sync_in_a_thread.py [connection string]`.
"""

import sys
import threading

from borzoi import Client, Consumer, Message, Producer, RetryPolicy, codecs

SERVER = "iggy://iggy:iggy@127.0.0.1:8090"
READINGS = 50


def work(consumer: Consumer[str], seen: list[float], is_done: threading.Event) -> None:
    def handle(message: Message[str]) -> None:
        seen.append(float(message.value))
        if len(seen) == READINGS:
            is_done.set()

    consumer.run(handle, retry=RetryPolicy(attempts=2, backoff_s=0.01), dead_letter_topic="temperatures-dead")


def main(server: str = SERVER) -> None:
    with Client(server) as client:
        if client.get_stream("sensors") is None:
            client.create_stream(name="sensors")
            client.create_topic(stream="sensors", name="temperatures", partitions_count=2)

        # Producer and consumer have connections, and threads, of their own; the client is only asked how to
        # connect. The handler runs in the thread that calls `run`.
        seen: list[float] = []
        is_done = threading.Event()
        with Consumer(client, "sensors", "temperatures", group="averages", codec=codecs.TEXT) as consumer:
            worker = threading.Thread(target=work, args=(consumer, seen, is_done))
            worker.start()
            with Producer(client, "sensors", "temperatures", codec=codecs.TEXT) as producer:
                for number in range(READINGS):
                    producer.send(f"{20 + number / 10}")
                producer.send("broken sensor")
            print("everything is stored")
            is_done.wait()
            consumer.stop()
            worker.join()
        print(f"{len(seen)} readings, {sum(seen) / len(seen):.2f} degrees on average")


if __name__ == "__main__":
    main(*sys.argv[1:])
