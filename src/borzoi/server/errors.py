"""Why a server does not start."""


class StartError(Exception):
    """The server cannot start as configured; the text says why and what to do."""
