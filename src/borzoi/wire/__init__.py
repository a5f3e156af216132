"""Sans-IO codecs: no sockets, no clock, no event loop. One sub-package per wire generation."""
