"""What the platform means: catalog, users, sessions, groups, and one handler per command."""
