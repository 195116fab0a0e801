"""How many files and sockets this process may have open: raising the limit, sharing it out, and what to do about it.

Owns the numbers and the words. Must never open anything.
"""

import errno
import resource
from contextlib import suppress

from tiered.config.setting import INT_MAX
from tiered.errors import InvalidConfig

OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
"""The errors of a file that could not be opened for want of a descriptor. They say nothing of the disk."""
FEWEST_BESIDE_LOGS = 50
"""Sockets, the database, the object store: with fewer files beside its logs a broker cannot work."""
BESIDE_LOGS = 100
"""So many are kept from connections for the same, and for segments that are read."""
FEW_CONNECTIONS = 200
ADVICE = "LimitNOFILE= in systemd, --ulimit nofile= in Docker, limits.conf or `ulimit -n` elsewhere"


def raise_limit() -> int:
    """Raises this process's own limit as far as the system lets it; the limit now."""
    _, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # Some systems promise more than they give.
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, highest))
    return limit()


def limit() -> int:
    """The limit now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return INT_MAX if soft == resource.RLIM_INFINITY else soft


def for_connections(most: int, log_count: int) -> int:
    """How many of `most` files may be clients' connections: each log has one open, and a quarter of all is kept."""
    return max(1, most - max(most // 4, BESIDE_LOGS + log_count))


def require_enough(most: int, log_count: int) -> str | None:
    """A warning where few connections are left beside so many logs. Raises InvalidConfig where a broker cannot work."""
    fewest = FEWEST_BESIDE_LOGS + log_count
    allowed = f"this process may have {most:,} files open"
    if most < fewest:
        raise InvalidConfig(
            f"{allowed}, and this broker needs {fewest:,} and one for each connection: {log_count:,} for its logs, "
            f"{FEWEST_BESIDE_LOGS} for its stores and sockets. Raise the limit: {ADVICE}"
        )
    connections = for_connections(most, log_count)
    if connections < FEW_CONNECTIONS:
        return (
            f"{allowed}, which leaves {connections:,} for connections beside {log_count:,} logs, its stores and "
            f"sockets. Raise the limit: {ADVICE}"
        )
    return None


def for_logs(log_count: int) -> int:
    """How many more logs may be opened beside so many: the rest is for sockets, or nobody could reach a single one."""
    return max(0, limit() - FEWEST_BESIDE_LOGS - log_count)


def out_of_files(what: str) -> str:
    """The words for something that could not be opened."""
    return (
        f"{what}: this process may have {limit():,} files open; they are in use, or kept for its stores and sockets. "
        f"Raise the limit: {ADVICE}"
    )
