"""The least a Python server can do with the same bytes: the yardstick of the hot path benchmark.

    bare_server.py append FILE              writes the body of every frame to FILE and acknowledges it
    bare_server.py serve FILE SLICE_BYTES   answers every frame with the next slice of FILE, memory-mapped

It uses the same event loop and the same way of receiving as a careful server: one preallocated buffer per
connection, reads that end where a large frame ends, all acknowledgements of one read in one write. Of the
protocol it knows one number, the frame length at offset 48. It checks, routes, stamps and remembers nothing.
"""

import asyncio
import mmap
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, cast

from frames import (
    ACKNOWLEDGEMENT_BYTES,
    HEADER_BYTES,
    POLL_PREFIX_BYTES,
    SIZE_AT,
    U32,
)

BUFFER_BYTES = 256 * 1024

Answer = Callable[[asyncio.WriteTransport, memoryview, list[tuple[int, int]]], None]


class BareProtocol(asyncio.BufferedProtocol):
    """Cuts the stream into frames and hands over the complete ones of each read."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._filled = 0
        self._wanted = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's, so this cannot be asserted.
        self._transport = cast("asyncio.WriteTransport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio calls it so
        if self._wanted > BUFFER_BYTES:
            return self._view[self._filled : self._wanted]
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        view, filled = self._view, self._filled
        if filled < self._wanted:
            return
        start = 0
        complete = []
        self._wanted = 0
        while filled - start >= HEADER_BYTES:
            size = U32.unpack_from(view, start + SIZE_AT)[0]
            if filled - start < size:
                self._wanted = size
                break
            complete.append((start, start + size))
            start += size
        if complete:
            self._answer(self._transport, view, complete)
        self._keep(start)

    def _keep(self, start: int) -> None:
        """Moves the beginning of an incomplete frame to the front, into a larger buffer if it needs one."""
        rest = self._filled - start
        if self._wanted > len(self._view):
            larger = memoryview(bytearray(self._wanted))
            larger[:rest] = self._view[start : self._filled]
            self._view = larger
        elif start and rest:
            self._view[:rest] = bytes(self._view[start : self._filled])
        self._filled = rest


def appender(path: str) -> Answer:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    acknowledgement = bytearray(ACKNOWLEDGEMENT_BYTES)
    U32.pack_into(acknowledgement, SIZE_AT, ACKNOWLEDGEMENT_BYTES)
    acknowledgement[60] = 8
    one = bytes(acknowledgement)

    def answer(transport: asyncio.WriteTransport, view: memoryview, complete: list[tuple[int, int]]) -> None:
        for start, end in complete:
            os.write(file, view[start + HEADER_BYTES : end])
        transport.write(one * len(complete))

    return answer


def slicer(path: str, slice_bytes: int) -> Answer:
    with open(path, "rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    slices = [view[start : start + slice_bytes] for start in range(0, len(view), slice_bytes)]
    prefix = bytearray(HEADER_BYTES + POLL_PREFIX_BYTES)
    U32.pack_into(prefix, SIZE_AT, len(prefix) + slice_bytes)
    prefix[60] = 8
    head = bytes(prefix)
    served = 0

    def answer(transport: asyncio.WriteTransport, _: memoryview, complete: list[tuple[int, int]]) -> None:
        nonlocal served
        for _frame in complete:
            transport.write(head)
            transport.write(slices[served % len(slices)])
            served += 1

    return answer


async def serve(answer: Answer) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(lambda: BareProtocol(answer), "127.0.0.1", 0)
    print(f"ready tcp=127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await stop.wait()


def run(main: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


if __name__ == "__main__":
    mode, file = sys.argv[1:3]
    run(serve(appender(file) if mode == "append" else slicer(file, int(sys.argv[3]))))
