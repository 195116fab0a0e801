"""How a store's URL becomes the store.

Owns the choice alone, above all kinds of stores. Must never import boto3 before somebody asks for S3.
"""

from tiered.cold.object_store import LocalAddress, ObjectStore, S3Address, parse_store_url


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
