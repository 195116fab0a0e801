"""The meaning of boto3's exceptions: one table from S3's codes to the client's next step.

Owns the sorting only. Must never retry and never quote a response's text: it may repeat what was sent.
"""

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

    def __str__(self) -> str:
        return f"{self.status} {self.code}" if self.status else self.code


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
    "NoSuchBucket": Meaning.REFUSED,
    "RequestTimeTooSkewed": Meaning.REFUSED,
}


def sort_failure(error: Exception) -> Failure | None:
    """The meaning of `error`, or None when it is a bug of ours (wrong parameters) and must be raised unchanged."""
    if isinstance(error, ClientError):
        return _sort_answer(error)
    if isinstance(error, _SILENCE):
        return Failure(meaning=Meaning.TIMED_OUT, status=0, code=type(error).__name__)
    if isinstance(error, _TRANSPORT):
        return Failure(meaning=Meaning.AGAIN, status=0, code=type(error).__name__)
    if isinstance(error, BotoCoreError) and not isinstance(error, ParamValidationError):
        # The remaining errors need a person: no credentials, half of them, an expired login, no such profile.
        return Failure(meaning=Meaning.REFUSED, status=0, code=type(error).__name__)
    return None


def _sort_answer(error: ClientError) -> Failure:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    meaning = _BY_CODE.get(code)
    if meaning is None:
        meaning = _by_status(status)
    return Failure(meaning=meaning, status=status, code=code[:64], store_time_ms=_store_time_ms(error))


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
