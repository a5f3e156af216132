"""What several test suites need: real server processes, official clients, official test suites."""
