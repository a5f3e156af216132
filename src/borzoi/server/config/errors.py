"""What is raised when the configuration cannot be used."""


class ConfigError(Exception):
    """Everything found wrong, one sentence each, in the order of the sources."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
