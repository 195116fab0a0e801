"""The area `store`: the object store, and whether it keeps the promises that the cold tier builds on.

Writes objects of its own below `probes/` and deletes them; for a read replica it only reads. Every request has a short
time-out and few repeats.
"""

import http.client
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TypeVar
from urllib.parse import urlsplit

from tiered.cli.doctor.disk import nearest_existing
from tiered.cli.doctor.findings import CheckResult, Situation, fail, ok, warn
from tiered.cli.output import counted
from tiered.cold.bucket import checkpoints
from tiered.cold.local import LocalStore
from tiered.cold.object_store import LocalAddress, ObjectStore, S3Address, StoreCapabilities, parse_store_url
from tiered.cold.opening import open_store
from tiered.cold.read_only_store import ReadOnlyStore
from tiered.errors import InvalidConfig, ObjectExists, StoreTrouble, StoreUnavailable, TieredError
from tiered.runtime import SystemClock, new_uuid

CONNECT_TIMEOUT_MS = 3_000
READ_TIMEOUT_MS = 5_000
OBJECT_BYTES = 64 << 10
SLOW_MS = 1_000.0
CLOCK_WARN_MS = 5_000
CLOCK_FAIL_MS = 14 * 60_000
"""AWS refuses requests that are signed 15 minutes off."""

T = TypeVar("T")


def store(situation: Situation) -> Iterator[CheckResult]:
    """Whether objects can be written once, read back whole and in part, and deleted."""
    try:
        address = parse_store_url(situation.options.store_url)
    except InvalidConfig as error:
        yield fail("address", str(error), "Correct --store URL.")
        return
    if situation.options.read_only:
        yield from _readable(situation.options.store_url)
        return
    match address:
        case LocalAddress():
            yield from _folder(address)
        case S3Address():
            yield from _bucket(address)


def _readable(url: str) -> Iterator[CheckResult]:
    """For a read replica: nothing is written, not even to try."""
    opened = open_store(url, timeout_ms=READ_TIMEOUT_MS)
    try:
        cluster = checkpoints.read_cluster_checkpoint(ReadOnlyStore(opened))
    except TieredError as error:
        yield fail("read", f"the cluster's checkpoint cannot be read: {error}", "See what the message names.")
        return
    finally:
        opened.close()
    if cluster is None:
        advice = "Correct --store URL: bucket and prefix are those of the brokers' --store."
        yield fail("read", f"there is no cluster's checkpoint in {opened.url}", advice)
        return
    count = len(cluster.topics)
    yield ok("read", f"the bucket of cluster {cluster.cluster_id} can be read: {counted(count, 'topic')}", topics=count)


def _folder(address: LocalAddress) -> Iterator[CheckResult]:
    directory = address.directory.absolute()
    if not directory.exists():
        yield ok(
            "address", f"{directory} is not there yet; it will be made in {nearest_existing(directory)}", exists=False
        )
        return
    if not directory.is_dir():
        yield fail("address", f"{directory} is no folder", "Name another with --store URL.")
        return
    # It uses a folder of its own, because a store leaves its lock file wherever it was once written to.
    own = directory / f".tiered-doctor-{new_uuid().hex}"
    try:
        yield from _round_trip(LocalStore(own))
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _bucket(address: S3Address) -> Iterator[CheckResult]:
    from tiered.cold.s3.store import S3Store

    off_ms = _clock_difference(address)
    if off_ms is not None:
        yield _clock(off_ms)
    opened = S3Store(
        address,
        probe_first=False,
        max_attempts=2,
        connect_timeout_ms=CONNECT_TIMEOUT_MS,
        read_timeout_ms=READ_TIMEOUT_MS,
    )
    try:
        yield from _round_trip(opened)
    finally:
        opened.close()


def _clock_difference(address: S3Address) -> float | None:
    """The store's clock minus ours, by the Date of any answer; None where none comes."""
    url = address.endpoint_url or f"https://s3.{address.region or 'us-east-1'}.amazonaws.com"
    parts = urlsplit(url)
    assert parts.hostname is not None
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=CONNECT_TIMEOUT_MS / 1000)
    clock = SystemClock()
    try:
        before_ms = clock.now_ms()
        connection.request("HEAD", "/")
        date = connection.getresponse().getheader("Date")
        ours_ms = (before_ms + clock.now_ms()) / 2
        # A Date has whole seconds: half a one is the best guess.
        return None if date is None else parsedate_to_datetime(date).timestamp() * 1000 + 500 - ours_ms
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def _clock(off_ms: float) -> CheckResult:
    seconds = round(off_ms / 1000)
    if abs(off_ms) > CLOCK_WARN_MS:
        message = f"the store's clock is {abs(seconds)} s {'ahead of' if off_ms > 0 else 'behind'} this machine's"
        advice = "Set this machine's clock (chrony): S3 refuses requests that are signed 15 minutes off."
        make = fail if abs(off_ms) > CLOCK_FAIL_MS else warn
        return make("clock", message, advice, off_ms=off_ms)
    return ok("clock", "the store's clock is this machine's, to a second or so", off_ms=off_ms)


def _round_trip(opened: ObjectStore) -> Iterator[CheckResult]:
    key = f"probes/doctor-{new_uuid()}"
    data = key.encode() * (OBJECT_BYTES // len(key))
    timed = _Timed()
    try:
        try:
            timed.of("put", lambda: opened.put(key, data, create_only=True))
            whole, _ = timed.of("get", lambda: opened.get(key, max_bytes=len(data)))
            part = timed.of("get_range", lambda: opened.get_range(key, 1_000, 5_000))
        except InvalidConfig as error:
            yield fail("access", str(error), "Correct --store URL.")
            return
        except TieredError as error:
            yield fail("access", str(error), _why_not(opened, error))
            return
        if whole != data or part != data[1_000:6_000]:
            yield fail("reading", f"{_shown(opened)} does not give back what was written", "Use another store.")
            return
        yield ok("access", f"{_shown(opened)} takes an object and gives it back, whole and in part", **timed.took_ms)
        yield _overwriting(opened, key, data)
        if not isinstance(opened, LocalStore):
            with suppress(TieredError):
                yield from _promises(opened.probe())
            yield _listing(opened, key)
    finally:
        with suppress(TieredError):
            timed.of("delete", lambda: opened.delete(key))
    yield from _gone(opened, key)
    slowest, took_ms = max(timed.took_ms.items(), key=lambda each: each[1])
    message = f"put {timed.took_ms['put_ms']:.0f} ms, get {timed.took_ms['get_ms']:.0f} ms (64 KiB each)"
    if took_ms > SLOW_MS:
        slow = slowest.removesuffix("_ms")
        advice = "Choose a region near this machine: uploads and cold reads wait for each request."
        yield warn("latency", f"{message}; {slow} took {took_ms:.0f} ms", advice, **timed.took_ms)
    else:
        yield ok("latency", message, **timed.took_ms)


def _shown(opened: ObjectStore) -> str:
    return opened.url.partition("/.tiered-doctor-")[0]


class _Timed:
    """How long each operation took."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self.took_ms: dict[str, float] = {}

    def of(self, operation: str, call: Callable[[], T]) -> T:
        began_ms = self._clock.monotonic_ms()
        result = call()
        self.took_ms[f"{operation}_ms"] = self._clock.monotonic_ms() - began_ms
        return result


def _why_not(opened: ObjectStore, error: TieredError) -> str:
    if opened.url.startswith("file:"):
        return "Let this user write there, or name another folder with --store URL."
    return _ADVICE.get(error.trouble if isinstance(error, StoreUnavailable) else StoreTrouble.AWAY, _ELSEWHERE)


_ELSEWHERE = "See that endpoint_url and region are right, and that this machine may reach them."
_CREDENTIALS = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile (AWS_PROFILE), or the machine's role."
_ADVICE = {
    StoreTrouble.EXPIRED: _CREDENTIALS,
    StoreTrouble.CREDENTIALS: _CREDENTIALS,
    StoreTrouble.SKEWED: "Set this machine's clock: it is too far off for signed requests.",
    StoreTrouble.DENIED: "Allow s3:PutObject, GetObject, DeleteObject, ListBucket and AbortMultipartUpload to these "
    "credentials.",
    StoreTrouble.FULL: "Free room in the store, or raise the bucket's or the user's quota.",
    StoreTrouble.NO_BUCKET: "Create the bucket, or name another in --store URL.",
}


def _overwriting(opened: ObjectStore, key: str, data: bytes) -> CheckResult:
    advice = "Brokers look before they write there, which is nearly as good; honouring If-None-Match is safer."
    try:
        opened.put(key, data[::-1], create_only=True)
    except ObjectExists:
        return ok("create-only", "a second write of an object is refused", create_only=True)
    except TieredError as error:
        return warn("create-only", f"a second write was neither refused nor done: {error}", advice, create_only=False)
    return warn("create-only", "a second write of an object is not refused", advice, create_only=False)


def _promises(found: StoreCapabilities) -> Iterator[CheckResult]:
    if not found.if_match:
        advice = "Checkpoints are looked at before they are replaced there; nothing to do while one broker writes."
        yield warn("if-match", "conditional replacement (If-Match) is not honoured", advice, if_match=False)
    if found.checksum_verified:
        yield ok("checksum", "an upload whose CRC-32C is wrong is refused", checksum_verified=True)
    else:
        how = "not checked" if found.checksum_accepted else "refused"
        advice = "Size and footer are looked at after each upload all the same; a store that checks each byte is safer."
        yield warn("checksum", f"CRC-32C headers of uploads are {how}", advice, checksum_verified=False)


def _listing(opened: ObjectStore, key: str) -> CheckResult:
    """Objects that are not written in the order of their names are listed in it, and at once."""
    keys = [f"{key}/{name}" for name in "bca"]
    try:
        for written in keys:
            opened.put(written, b"x")
        listed = [name for name, _ in opened.list(f"{key}/")]
    except TieredError as error:
        return fail("listing", str(error), _UNLISTED)
    finally:
        with suppress(TieredError):
            for written in keys:
                opened.delete(written)
    if listed != sorted(keys):
        return fail("listing", f"of {len(keys)} objects that were just written {len(listed)} are listed", _UNLISTED)
    return ok("listing", "what was written is listed at once, in the order of names")


_UNLISTED = (
    "Allow s3:ListBucket, and use a store that lists all names in their order, as S3 does (its directory buckets do "
    "not): a restore, `tiered verify` and reconciling rest on that."
)


def _gone(opened: ObjectStore, key: str) -> Iterator[CheckResult]:
    try:
        left = opened.head(key) is not None
    except TieredError:
        return
    if left:
        yield warn(
            "deleting",
            f"{key} cannot be deleted",
            "Allow s3:DeleteObject, without which retention frees nothing; then delete that object.",
            left_behind=key,
        )
    else:
        yield ok("deleting", "what was written was deleted")
