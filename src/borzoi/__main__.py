"""`python -m borzoi` is `borzoi`."""

from borzoi.cli.main import main

main()
