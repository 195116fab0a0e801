"""`--command-config FILE`: Kafka's client properties, as its own tools take them.

Owns the file's syntax. Must never show a value: it may be a password.
"""

from pathlib import Path

from tiered.cli.failure import UsageError
from tiered.errors import InvalidConfig
from tiered.peer.security import CLIENT_NAMES, PeerSecurity, client_security

MAX_BYTES = 1 << 20
_OF_SECURITY = ("security.", "ssl.", "sasl.")


def command_security(path: str | None) -> PeerSecurity:
    """How the commands enter the brokers' listener; plaintext without a file. Raises UsageError.

    Properties of other kinds are passed over: the same file often serves Kafka's tools too.
    """
    if path is None:
        return PeerSecurity()
    try:
        with Path(path).expanduser().open("rb") as file:
            text = file.read(MAX_BYTES).decode()
        given = properties(text)
        return PeerSecurity(
            client_security(
                {name: value for name, value in given.items() if name in CLIENT_NAMES or name.startswith(_OF_SECURITY)}
            )
        )
    except OSError as error:
        raise UsageError(f"cannot read --command-config {path}: {error.strerror}") from error
    except (InvalidConfig, UnicodeDecodeError) as error:
        raise UsageError(f"--command-config {path}: {error}") from error


def properties(text: str) -> dict[str, str]:
    """Java's properties: `name=value` or `name: value`, # and ! begin comments, a backslash joins lines."""
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        joined = line.lstrip()
        if not joined or joined[0] in "#!":
            continue
        while (len(joined) - len(joined.rstrip("\\"))) % 2 == 1:
            joined = joined[:-1] + next(lines, "").lstrip()
        end = next((at for at, each in enumerate(joined) if each in "=: \t"), len(joined))
        value = joined[end:].lstrip(" \t")
        if value[:1] in ("=", ":"):
            value = value[1:].lstrip(" \t")
        found[joined[:end]] = value.replace("\\n", "\n").replace("\\\\", "\\")
    return found
