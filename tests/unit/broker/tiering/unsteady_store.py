"""A store that refuses uploads when a test says so."""

from collections.abc import Callable

from tiered.cold.local import LocalStore
from tiered.cold.object_store import ObjectInfo, parse_store_url


class UnsteadyStore(LocalStore):
    """The local store, but for uploads to which it raises what a test puts into `fails`."""

    def __init__(self, url: str) -> None:
        super().__init__(parse_store_url(url).directory)  # type: ignore[union-attr]
        self.fails: Callable[[str], Exception | None] = lambda _key: None
        self.asked: list[tuple[str, int, int]] = []
        """Topic, partition and base offset of each upload that was tried, in order."""

    def put_segment(
        self, key: str, fd: int, log_bytes: int, tail: bytes, *, timeout_ms: float | None = None
    ) -> ObjectInfo:
        *_, topic, partition, name = key.split("/")
        self.asked.append((topic.split("_")[0], int(partition), int(name.split("-")[0])))
        error = self.fails(key)
        if error is not None:
            raise error
        return super().put_segment(key, fd, log_bytes, tail, timeout_ms=timeout_ms)
