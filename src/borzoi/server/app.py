"""The server's start, as far as it can be done before anything heavy is imported.

Take the data directory's lock, take the port, then import and run the rest (`borzoi.server.serving`). From
the moment the port is taken clients that come early wait for the server instead of being refused, also while
a large log is recovered.
"""

from borzoi.log.directory import DataDirectory, DataDirectoryError, wipe
from borzoi.server.config import Loaded
from borzoi.server.errors import StartError
from borzoi.server.logs import configure
from borzoi.server.tcp.port import take_port

EXIT_OK = 0
EXIT_FAILED = 1


def run(loaded: Loaded, *, fresh: bool = False) -> int:
    """Run until told to stop; returns the exit code of the process."""
    config = loaded.config
    logger = configure(config.system.logging.level)
    for warning in loaded.warnings:
        logger.warning("configuration", what=warning)
    directory = DataDirectory(config.system.path)
    try:
        if fresh:
            wipe(config.system.path)
        directory.open()
        try:
            if not config.tcp.enabled:
                raise StartError("tcp.enabled is false, and this version has no other listener")
            port = take_port(config.tcp.address)
            try:
                from borzoi.server.serving import serve  # noqa: PLC0415 - see the module's docstring

                serve(loaded, directory, port, logger)
            finally:
                port.close()
        finally:
            directory.close()
    except (DataDirectoryError, StartError, OSError) as error:
        logger.error("cannot start", reason=str(error))
        return EXIT_FAILED
    return EXIT_OK
