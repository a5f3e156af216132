"""The `borzoi` command."""
