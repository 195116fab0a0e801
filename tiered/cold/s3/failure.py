"""The meaning of boto3's exceptions: one table from S3's codes to the client's next step, one to people's.

Owns the sorting and the advice. Must never retry and never quote a response's text: it may repeat what was sent.
"""

import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    HTTPClientError,
    IncompleteReadError,
    ParamValidationError,
    ReadTimeoutError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError
from urllib3.exceptions import TimeoutError as SilenceError

from tiered.errors import StoreTrouble

_SILENCE = (ConnectTimeoutError, ReadTimeoutError, SilenceError)
_TRANSPORT = (BotoConnectionError, HTTPClientError, IncompleteReadError, ResponseParserError, HTTPError)


class Meaning(Enum):
    """The client's next step after a failed request."""

    MISSING = "no such object"
    PRECONDITION = "the condition of the request does not hold"
    NO_UPLOAD = "no such multipart upload"
    OUT_OF_RANGE = "the object ends before the range"
    SLOW_DOWN = "the store asks for fewer requests"
    TIMED_OUT = "no answer came in time"
    AGAIN = "it may work at once"
    NOT_SUPPORTED = "the store does not know this kind of request"
    REFUSED = "credentials, permissions, the bucket's name or this machine's clock are wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A sorted failure. `code` is S3's error code, or the exception's name when there was no answer."""

    meaning: Meaning
    status: int
    code: str
    store_time_ms: int | None = None
    """The time at the store, where its answer has one."""
    is_locked: bool = False
    """The answer speaks of a lock on the object."""

    def __str__(self) -> str:
        return f"{self.status} {self.code}" if self.status else self.code

    @property
    def trouble(self) -> StoreTrouble:
        if self.is_locked:
            return StoreTrouble.LOCKED
        if self.meaning is Meaning.REFUSED:
            unknown = StoreTrouble.FULL if _is_full(self.status, self.code) else StoreTrouble.DENIED
            return _REFUSALS.get(self.code, unknown)
        return StoreTrouble.SLOW if self.meaning is Meaning.SLOW_DOWN else StoreTrouble.AWAY

    @property
    def is_of_credentials(self) -> bool:
        """Whether other credentials may do; 403 is all that an answer to HEAD says of those that are unknown."""
        return self.trouble in (StoreTrouble.EXPIRED, StoreTrouble.CREDENTIALS) or self.code == "403"

    def advice(self, now_ms: int) -> str:
        """What to do about it, on a machine whose clock says `now_ms`."""
        if self.trouble is StoreTrouble.SKEWED:
            return _clock_advice(self.store_time_ms, now_ms)
        return _ADVICE[self.trouble]


_ADVICE = {
    StoreTrouble.AWAY: "try again later",
    StoreTrouble.SLOW: "it asks for fewer requests; try again later, and lower tiered.upload.concurrency if this lasts",
    StoreTrouble.EXPIRED: "the session has expired, or what renews it fails; renew the credentials where they come "
    "from; a broker that runs reads them again by itself",
    StoreTrouble.CREDENTIALS: "it does not know these credentials, or there are none; correct them where they come "
    "from; a broker that runs reads them again by itself",
    StoreTrouble.DENIED: "check the bucket's name, the credentials and their permissions",
    StoreTrouble.LOCKED: "a lock or a retention rule of the bucket keeps this object; wait for its end, or lift it",
    StoreTrouble.ARCHIVED: "a rule of the bucket or a person moved this object to an archive; restore it from there, "
    "and end that rule: objects are read until they are deleted",
    StoreTrouble.FULL: "it has no room left, or a quota is reached; free some, or raise the quota. Objects past their "
    "retention are deleted once it takes a checkpoint again",
    StoreTrouble.NO_BUCKET: "create the bucket, or name another",
}

_REFUSALS = {
    "400": StoreTrouble.EXPIRED,  # What is left of ExpiredToken in an answer to HEAD, which has no body
    "ExpiredToken": StoreTrouble.EXPIRED,
    "ExpiredTokenException": StoreTrouble.EXPIRED,
    "TokenRefreshRequired": StoreTrouble.EXPIRED,
    "InvalidIdentityToken": StoreTrouble.EXPIRED,  # STS, for the token of a web identity
    "CredentialRetrievalError": StoreTrouble.EXPIRED,
    "LoginRefreshRequired": StoreTrouble.EXPIRED,
    "TokenRetrievalError": StoreTrouble.EXPIRED,
    "UnauthorizedSSOTokenError": StoreTrouble.EXPIRED,
    "InvalidAccessKeyId": StoreTrouble.CREDENTIALS,
    "InvalidToken": StoreTrouble.CREDENTIALS,
    "InvalidTokenId": StoreTrouble.CREDENTIALS,  # MinIO
    "SignatureDoesNotMatch": StoreTrouble.CREDENTIALS,
    "NoCredentialsError": StoreTrouble.CREDENTIALS,
    "PartialCredentialsError": StoreTrouble.CREDENTIALS,
    "ProfileNotFound": StoreTrouble.CREDENTIALS,
    "RequestTimeTooSkewed": StoreTrouble.SKEWED,
    "ObjectLocked": StoreTrouble.LOCKED,  # MinIO
    "InvalidObjectState": StoreTrouble.ARCHIVED,
    "NoSuchBucket": StoreTrouble.NO_BUCKET,
}
"""Refusals that are more than "denied"."""

_LOCK = re.compile(r"object.?lock|WORM|retention", re.IGNORECASE)
"""AWS has no code for a locked object, only a text beside AccessDenied."""

_MAX_SKEW_MS = 900_000
"""S3 takes no request whose time is further off. Source: "Authenticating Requests (AWS Signature Version 4)"."""

_FULL = re.compile(r"StorageFull|InsufficientStorage|Quota_?Exceeded", re.IGNORECASE)
"""AWS is never full. MinIO answers XMinioStorageFull (507) and XMinioAdminBucketQuotaExceeded (400), Ceph and Versity
QuotaExceeded (403), NooBaa ObjectQuotaExceeded, Ozone QUOTA_EXCEEDED."""


_BY_CODE = {
    "NoSuchKey": Meaning.MISSING,
    "PreconditionFailed": Meaning.PRECONDITION,
    "ConditionalRequestConflict": Meaning.AGAIN,
    "OperationAborted": Meaning.AGAIN,
    "NoSuchUpload": Meaning.NO_UPLOAD,
    "InvalidRange": Meaning.OUT_OF_RANGE,
    "SlowDown": Meaning.SLOW_DOWN,
    "Throttling": Meaning.SLOW_DOWN,
    "TooManyRequests": Meaning.SLOW_DOWN,
    "RequestLimitExceeded": Meaning.SLOW_DOWN,
    "InternalError": Meaning.AGAIN,
    "RequestTimeout": Meaning.TIMED_OUT,
    "IncompleteBody": Meaning.AGAIN,
    # The body did not arrive as it was sent: our checksum did its work, and the next try may arrive whole.
    "BadDigest": Meaning.AGAIN,
    "InvalidDigest": Meaning.AGAIN,
    "XAmzContentChecksumMismatch": Meaning.AGAIN,
    "NotImplemented": Meaning.NOT_SUPPORTED,
    "InvalidArgument": Meaning.NOT_SUPPORTED,
    "InvalidRequest": Meaning.NOT_SUPPORTED,
    **dict.fromkeys(_REFUSALS, Meaning.REFUSED),
}


def sort_failure(error: Exception, now_ms: int) -> Failure | None:
    """The meaning of `error` on a machine whose clock says `now_ms`, or None when it is a bug of ours (wrong
    parameters) and must be raised unchanged."""
    if isinstance(error, ClientError):
        return _sort_answer(error, now_ms)
    if isinstance(error, _SILENCE):
        return Failure(meaning=Meaning.TIMED_OUT, status=0, code=type(error).__name__)
    if isinstance(error, _TRANSPORT):
        return Failure(meaning=Meaning.AGAIN, status=0, code=type(error).__name__)
    if isinstance(error, BotoCoreError) and not isinstance(error, ParamValidationError):
        # The remaining errors need a person: no credentials, half of them, an expired login, no such profile.
        return Failure(meaning=Meaning.REFUSED, status=0, code=type(error).__name__)
    return None


def _sort_answer(error: ClientError, now_ms: int) -> Failure:
    store_time_ms = _store_time_ms(error)
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code == "403" and store_time_ms is not None and abs(now_ms - store_time_ms) > _MAX_SKEW_MS:
        code = "RequestTimeTooSkewed"  # An answer to HEAD has no body that would say so.
    meaning = _BY_CODE.get(code)
    if meaning is None:
        meaning = Meaning.REFUSED if _is_full(status, code) else _by_status(status)
    return Failure(
        meaning=meaning,
        status=status,
        code=code[:64],
        store_time_ms=store_time_ms,
        is_locked=code == "AccessDenied" and _LOCK.search(str(error.response["Error"].get("Message", ""))) is not None,
    )


def _is_full(status: int, code: str) -> bool:
    """Whether the store has no room. A quota of requests, which 429 and 503 tell of, is another matter."""
    return status == 507 or (status in (400, 403) and _FULL.search(code) is not None)


def _clock_advice(store_time_ms: int | None, now_ms: int) -> str:
    ahead_s = 0 if store_time_ms is None else (now_ms - store_time_ms) // 1000
    off = f"{abs(ahead_s)} s {'ahead of' if ahead_s > 0 else 'behind'} the store's" if ahead_s else "wrong"
    return f"this machine's clock is {off}: let NTP set it (chronyc tracking, timedatectl)"


def _store_time_ms(error: ClientError) -> int | None:
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        return round(parsedate_to_datetime(str(headers.get("date", ""))).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _by_status(status: int) -> Meaning:
    match status:
        case 404:
            return Meaning.MISSING
        case 412:
            return Meaning.PRECONDITION
        case 416:
            return Meaning.OUT_OF_RANGE
        case 429 | 503:
            return Meaning.SLOW_DOWN
        case 408 | 504:
            return Meaning.TIMED_OUT
        case 409:
            return Meaning.AGAIN
        case 501:
            return Meaning.NOT_SUPPORTED
        case _ if status >= 500:
            return Meaning.AGAIN
        case _ if status == 400:
            return Meaning.NOT_SUPPORTED
        case _:
            return Meaning.REFUSED
