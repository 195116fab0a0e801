"""A password, a key, or where one of them stands: `file:PATH` or `env:NAME`.

Owns the way from a reference to its text, taken each time that the text is needed, so that a file that was replaced is
read anew. Must never show the text: it is in no repr, no error and no log.
"""

import os
from pathlib import Path

from tiered.errors import InvalidConfig

FILE, ENVIRONMENT = "file:", "env:"
MAX_BYTES = 1 << 20


class Secret:
    """One secret of the setting `name`. Equal to another with the same text or reference."""

    __slots__ = ("_name", "_text")

    def __init__(self, text: str, *, name: str) -> None:
        self._text = text
        self._name = name

    def __repr__(self) -> str:
        return f"Secret({self._text if self.is_reference else '[hidden]'})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    @property
    def is_reference(self) -> bool:
        """The reference is shown, not the secret."""
        return self._text.startswith((FILE, ENVIRONMENT))

    @property
    def path(self) -> Path | None:
        """The file that it stands in, where it does."""
        return Path(self._text.removeprefix(FILE)).expanduser() if self._text.startswith(FILE) else None

    def reveal(self) -> str:
        """The text, without the line feed that ends a file. Raises InvalidConfig when it cannot be had."""
        if self._text.startswith(ENVIRONMENT):
            variable = self._text.removeprefix(ENVIRONMENT)
            found = os.environ.get(variable)
            if found is None:
                raise InvalidConfig(f"{self._name} names the environment variable {variable}, which is not set")
            return found
        path = self.path
        if path is None:
            return self._text
        try:
            with path.open("rb") as file:
                return file.read(MAX_BYTES).decode().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
            raise InvalidConfig(f"{self._name} names the file {path}, which cannot be read: {why}") from None
