"""How a store's URL becomes the store, and the name under which a cluster's catalogue keeps it: each start compares it.

Owns the choice and the name, above all kinds of stores. Must never import boto3 before somebody asks for S3, and never
put into a name a credential, or what may differ from broker to broker: the endpoint, the region and other parameters.
"""

import os
from pathlib import Path
from urllib.parse import quote

from tiered.cold.object_store import LocalAddress, ObjectStore, S3Address, parse_store_url

_HERE = "/./"
"""Stands where the data folder ends: that may be moved, and a store within goes with it. In no other identity."""


def open_store(url: str, *, timeout_ms: int | None = None) -> ObjectStore:
    """The store that `url` names (see `parse_store_url`). Talks to nobody yet: `probe` does.

    `timeout_ms` is how long one request to a remote store may be silent; None takes the store's own.

    Raises `InvalidConfig` for a URL that is wrong.
    """
    address = parse_store_url(url)
    match address:
        case LocalAddress():
            from tiered.cold.local import LocalStore

            return LocalStore(address.directory)
        case S3Address():
            from tiered.cold.s3.store import S3Store  # boto3 only for those who asked for it

            return S3Store(address) if timeout_ms is None else S3Store(address, read_timeout_ms=timeout_ms)


def store_identity(url: str, *, data_dir: Path | None = None) -> str:
    """The store's name in a metadata store: a URL without parameters, and without any quote.

    Raises `InvalidConfig` for a URL that is wrong.
    """
    address = parse_store_url(url)
    match address:
        case S3Address():
            return f"s3://{address.bucket}/{address.prefix}".rstrip("/")
        case LocalAddress():
            path = address.directory.resolve()
            home = None if data_dir is None else data_dir.resolve()
            if home is None or path == home or not path.is_relative_to(home):
                return path.as_uri()
            return home.as_uri() + _HERE + quote(os.fsencode(path.relative_to(home)))


def is_same_store(identity: str, other: str) -> bool:
    """Whether both name one store: by its URL, or each by the same place within a data folder."""
    if identity.replace(_HERE, "/") == other.replace(_HERE, "/"):
        return True
    place = identity.partition(_HERE)[2]
    return place != "" and place == other.partition(_HERE)[2]
