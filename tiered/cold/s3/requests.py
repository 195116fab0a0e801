"""One request at a time to the S3 API: how many run at once, how often each is tried, and what its failure means.

Owns boto3's client, its timeouts and every retry (boto3's own are off, so that each attempt is bounded and counted
here), and the checks that an answer fits its question: callers act on it, up to deleting what a listing names. Must
never print a credential and never retry what cannot change.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError  # botocore's own dependency, whose errors it does not always translate

from tiered.cold.object_store import S3Address
from tiered.cold.request_counts import RequestCounts
from tiered.cold.s3.body_deadlines import BodyDeadlines
from tiered.cold.s3.failure import Failure, Meaning, sort_failure
from tiered.cold.upload_deadline import UploadDeadline
from tiered.errors import (
    CorruptObject,
    InvalidConfig,
    ObjectMissing,
    StoreRefused,
    StoreTrouble,
    StoreUnavailable,
    TieredError,
)
from tiered.rules.pacing import adaptive_limit
from tiered.runtime import Clock, SystemClock, jittered_backoff_ms

if TYPE_CHECKING:
    from tiered.cold.s3.credentials import RenewedCredentials

T = TypeVar("T")

_SLOW_DOWN_FACTOR = 8
_SUCCESSES_PER_STEP = 20
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)\Z")
_OVERLOAD = frozenset({Meaning.SLOW_DOWN, Meaning.TIMED_OUT})


class WrongAnswerError(Exception):
    """The store answered something else than what was asked; the next answer may be right."""


class RequestFailedError(Exception):
    """A failure that trying again does not change, and how many attempts were made."""

    def __init__(self, failure: Failure, *, attempts: int) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.attempts = attempts

    @property
    def meaning(self) -> Meaning:
        return self.failure.meaning


@dataclass(slots=True)
class S3State:
    """Counts since the store was opened, for metrics: all attempts, those that had to be repeated, and why."""

    retries: int = 0
    slow_downs: int = 0
    timeouts: int = 0
    requests: RequestCounts = field(default_factory=RequestCounts)


class RequestLimit:
    """How many requests may be with the store at once, of which threads wait for their turn: between 1 and
    `max_requests`. Each sign of overload halves them; every 20 successes give one back."""

    def __init__(self, max_requests: int, clock: Clock) -> None:
        self._clock = clock
        self._limit = adaptive_limit.unlimited(max_requests, step=_SUCCESSES_PER_STEP)
        self._running = 0
        self._changed = threading.Condition()

    @property
    def allowed(self) -> int:
        """Requests that may run at once now."""
        return self._limit.allowed

    @contextmanager
    def slot(self) -> Iterator[float]:
        """Waits for a turn and holds it; gives when it began. Turns are short: every request has a timeout, so the
        wait has an end."""
        with self._changed:
            self._changed.wait_for(lambda: self._running < self._limit.allowed)
            self._running += 1
        try:
            yield self._clock.monotonic_ms()
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify()

    def overloaded(self, began_ms: float) -> None:
        """The request that began then was refused or not answered. Many that fail together count as one."""
        with self._changed:
            self._limit = adaptive_limit.overloaded(self._limit, began_ms=began_ms, now_ms=self._clock.monotonic_ms())

    def succeeded(self) -> None:
        with self._changed:
            before = self._limit.allowed
            self._limit = adaptive_limit.succeeded(self._limit)
            if self._limit.allowed > before:
                self._changed.notify()


class S3Requests:
    """boto3's client behind bounds. Threads share it: at most `max_requests` requests run at once, fewer after
    "slow down" or silence; each is tried `max_attempts` times with jittered pauses, then `StoreUnavailable`."""

    def __init__(
        self,
        address: S3Address,
        deadlines: BodyDeadlines,
        *,
        max_requests: int,
        max_attempts: int,
        connect_timeout_ms: float,
        read_timeout_ms: float,
        first_backoff_ms: float,
        max_backoff_ms: float,
    ) -> None:
        self._address = address
        self._deadlines = deadlines
        self._max_requests = max_requests
        self._max_attempts = max_attempts
        self._connect_timeout_ms = connect_timeout_ms
        self._read_timeout_ms = read_timeout_ms
        self._first_backoff_ms = first_backoff_ms
        self._max_backoff_ms = max_backoff_ms
        self._limit = RequestLimit(max_requests, SystemClock())
        self._closing = threading.Event()
        self._making = threading.Lock()
        self._made_client: Any = None
        self._credentials: RenewedCredentials | None = None
        self.state = S3State()

    @property
    def allowed_requests(self) -> int:
        """Requests that may run at once now."""
        return self._limit.allowed

    @property
    def client(self) -> Any:
        with self._making:
            if self._closing.is_set():
                raise StoreUnavailable(f"the store {self._address.url} is closed; try again after the restart")
            if self._made_client is None:
                self._made_client = self._make_client()
            return self._made_client

    def call(
        self,
        operation: str,
        key: str,
        request: Callable[[], T],
        *,
        final_codes: frozenset[str] = frozenset(),
        max_attempts: int | None = None,
        deadline: UploadDeadline | None = None,
    ) -> T:
        """`request`'s answer, tried again while the failure is one that passes.

        Raises `RequestFailedError` for failures that trying again cannot change, `StoreUnavailable` after the last
        attempt, and `UploadOverdue` instead of beginning one past the deadline.
        """
        failure: Failure | None = None
        max_attempts = max_attempts or self._max_attempts
        for attempt in range(max_attempts):
            if failure is not None:
                self._pause(attempt - 1, slow=failure.meaning is Meaning.SLOW_DOWN, deadline=deadline)
            with self._limit.slot() as began_ms:
                if deadline is not None:
                    deadline.check(failure)
                generation = 0 if self._credentials is None else self._credentials.generation
                self.state.requests.add(operation)
                try:
                    answer = request()
                except WrongAnswerError as error:
                    failure = Failure(meaning=Meaning.AGAIN, status=0, code=str(error))
                except (BotoCoreError, ClientError, ResponseParserError, HTTPError) as error:
                    failure = sort_failure(error, SystemClock().now_ms())
                    if failure is None:
                        raise
                except (KeyError, ValueError, RecursionError) as error:
                    # botocore makes of headers what they say: one that is absent, or no number, fails in here. It
                    # asks the same address again for each redirection without a region, until Python stops it.
                    failure = Failure(meaning=Meaning.AGAIN, status=0, code=f"no answer of S3: {type(error).__name__}")
                else:
                    self._limit.succeeded()
                    return answer
            if failure.meaning in _OVERLOAD:
                self._limit.overloaded(began_ms)
                self.state.slow_downs += failure.meaning is Meaning.SLOW_DOWN
                self.state.timeouts += failure.meaning is Meaning.TIMED_OUT
            elif failure.is_of_credentials and self._credentials and self._credentials.renew(generation):
                continue
            elif failure.meaning is not Meaning.AGAIN or failure.code in final_codes:
                raise RequestFailedError(failure, attempts=attempt + 1)
        assert failure is not None
        raise StoreUnavailable(
            f"the store {self._address.url} failed {max_attempts} times to {operation} {key} (last: {failure}); "
            f"{failure.advice(SystemClock().now_ms())}",
            failure.trouble,
        )

    def ask(self, operation: str, key: str, request: Callable[[], T], *, deadline: UploadDeadline | None = None) -> T:
        """As `call`, where no failure has a meaning of its own: each becomes the error that callers see."""
        try:
            return self.call(operation, key, request, deadline=deadline)
        except RequestFailedError as failed:
            raise self.give_up(operation, key, failed) from failed

    def _pause(self, attempt: int, *, slow: bool, deadline: UploadDeadline | None) -> None:
        self.state.retries += 1
        first_ms = self._first_backoff_ms * (_SLOW_DOWN_FACTOR if slow else 1)
        delay_ms = jittered_backoff_ms(attempt, first_ms=first_ms, max_ms=self._max_backoff_ms)
        remaining_s = None if deadline is None else deadline.remaining_s
        if self._closing.wait(delay_ms / 1000.0 if remaining_s is None else min(remaining_s, delay_ms / 1000.0)):
            raise StoreUnavailable(f"the store {self._address.url} is being closed; try again after the restart")

    def give_up(self, operation: str, key: str, failed: RequestFailedError) -> TieredError:
        """The error that callers see for a failure that no retry changes."""
        failure = failed.failure
        match failure.meaning:
            case Meaning.MISSING:
                return ObjectMissing(f"no object {key} in {self._address.url}")
            case Meaning.OUT_OF_RANGE:
                return CorruptObject(f"object {key} ends before the bytes asked for: truncated")
            case Meaning.NO_UPLOAD:
                return StoreUnavailable(f"somebody aborted the upload of {key}; upload it again")
            case _:
                kind, did_not = (
                    (StoreUnavailable, "did not")
                    if failure.trouble is StoreTrouble.AWAY
                    else (StoreRefused, "refused to")
                )
                advice = failure.advice(SystemClock().now_ms())
                return kind(
                    f"the store {self._address.url} {did_not} {operation} {key} ({failure}): {advice}", failure.trouble
                )

    def close(self) -> None:
        """Pauses between attempts end, and no request begins any more."""
        self._closing.set()
        with self._making:
            if self._made_client is not None:
                self._made_client.close()

    def _make_client(self) -> Any:
        import boto3  # 0.2 s that only the first request pays
        import botocore.session
        from botocore.config import Config

        from tiered.cold.s3.answers import bound_answers
        from tiered.cold.s3.credentials import RenewedCredentials

        core = botocore.session.Session()
        self._credentials = RenewedCredentials(SystemClock())
        core.register_component("credential_provider", self._credentials)
        session = boto3.session.Session(botocore_session=core)
        region: str | None = self._address.region or session.region_name
        if region is None:
            if self._address.endpoint_url is None:
                raise InvalidConfig("the store URL gives no region and AWS's settings know none; add ?region=…")
            region = "us-east-1"
        config = Config(
            s3={"addressing_style": "path" if self._address.path_style else "auto"},
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=self._connect_timeout_ms / 1000.0,
            read_timeout=self._read_timeout_ms / 1000.0,
            max_pool_connections=self._max_requests,
            tcp_keepalive=True,
            # Our own checksums: part by part on the way there, SHA-256 by chunk on the way back.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        client = session.client("s3", region_name=region, endpoint_url=self._address.endpoint_url, config=config)
        bound_answers(client, self._deadlines)
        return client


# What an answer must be


def check_range(answer: Any, key: str, start: int, length: int) -> None:
    status = answer["ResponseMetadata"]["HTTPStatusCode"]
    if status != 206:
        raise WrongAnswerError(f"status {status} instead of 206 for a range")
    got = _CONTENT_RANGE.match(answer.get("ContentRange", ""))
    if got is None:
        raise WrongAnswerError("no usable Content-Range")
    first, last, object_bytes = int(got[1]), int(got[2]), int(got[3])
    if first == start and last == object_bytes - 1 and last < start + length - 1:
        raise CorruptObject(f"object {key} ends at byte {object_bytes}, before {start + length}: truncated")
    if (first, last) != (start, start + length - 1):
        raise WrongAnswerError(f"Content-Range {first}-{last} instead of {start}-{start + length - 1}")


def check_listed(answer: Any, *, prefix: str, after: str, most: int) -> None:
    """Raises WrongAnswerError for names that were not asked for. Whoever walks through a listing goes on behind its
    last name, for ever if that is not behind the one before; and what a listing names may be deleted."""
    entries = answer.get("Contents", [])
    if len(entries) > most:
        raise WrongAnswerError(f"a listing of {len(entries)} objects where {most} were asked for")
    for entry in entries:
        if not entry["Key"].startswith(prefix):
            raise WrongAnswerError("a listing of other names than those with the prefix")
        if entry["Key"] <= after or entry["Size"] < 0:
            raise WrongAnswerError("a listing that is not in the order of names, or begins too early")
        after = entry["Key"]


def check_uploads(answer: Any, *, prefix: str) -> None:
    """Raises WrongAnswerError for uploads that are nobody's business here: they would be ended."""
    for upload in answer.get("Uploads", []):
        if not upload["Key"].startswith(prefix) or not upload["UploadId"] or not upload["Initiated"]:
            raise WrongAnswerError("a listing of other uploads than those with the prefix")
