"""The running process: configuration, start-up, transports and maintenance."""
