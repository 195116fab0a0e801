"""Whether an answer of the store is one to what it was asked: the range, the names, the order.

Owns these checks. Pure. Whoever asked acts on what is answered, up to deleting what a listing names: nothing may go on
from here that was not asked for.
"""

import re
from typing import Any

from tiered.cold.s3.requests import WrongAnswerError
from tiered.errors import CorruptObject

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)\Z")


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
