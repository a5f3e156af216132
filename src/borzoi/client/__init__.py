"""The client: `AsyncClient` and `Client`, one dialogue with the server and two ways to wait for it.

    values, details     what users pass in and get back
    settings            addresses, connection strings, credentials, TLS
    streams, topics, messages, offsets, groups, users, system
                        one function per command: arguments in, a `Call` out
    dialogue            what is said on one connection: frames, numbers, results, evictions, groups
    recovery            what is done about connections: log in, come back, send again or not
    incoming            bytes received, cut into replies
    aio, sync           the drivers: sockets, time, locks
    attachment          what those below may know about a client besides its methods
    codecs, cipher, payloads
                        values to payloads and back
    producer, outgoing  `AsyncProducer`: buffers and batches on top of an `AsyncClient`
    consumer            `AsyncConsumer`: iteration, commits, handlers
    ownership, holdings which partitions are a consumer's own, and what it has of each
    retry, dead_letters when to try again; what becomes of messages that cannot be handled
    blocking_producer, blocking_consumer, background
                        `Producer` and `Consumer`: the same, run by a thread

Import the public names from `borzoi`.
"""
