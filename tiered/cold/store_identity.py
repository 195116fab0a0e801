"""Which store a URL names, however it is reached: what a cluster's catalogue keeps, and each start compares.

Pure, but for the links of a local path. Must never hold a credential, nor what may differ from broker to broker: the
endpoint, the region and other parameters.
"""

import os
from pathlib import Path
from urllib.parse import quote

from tiered.cold.object_store import LocalAddress, S3Address, parse_store_url

_HERE = "/./"
"""Stands where the data folder ends: that may be moved, and a store within goes with it. In no other identity."""


def store_identity(url: str, *, data_dir: Path | None = None) -> str:
    """The store's name in a catalogue: a URL without parameters, and without any quote.

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
