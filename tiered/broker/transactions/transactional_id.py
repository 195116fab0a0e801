"""What a transactional id can be called, and what is said of one that nobody has."""

from tiered.broker.groups.values import MAX_GROUP_ID_BYTES
from tiered.errors import InvalidRequest, TransactionalIdNotFound


def check_name(transactional_id: str) -> None:
    """Raises InvalidRequest for what SQL could not store, or people could not read."""
    if not transactional_id:
        raise InvalidRequest("the transactional id is empty; set transactional.id")
    if "\0" in transactional_id or len(transactional_id.encode("utf-8", "surrogatepass")) > MAX_GROUP_ID_BYTES:
        raise InvalidRequest(
            f"a transactional id has at most {MAX_GROUP_ID_BYTES} bytes of UTF-8, and none of them is 0"
        )


def not_found(transactional_id: str) -> TransactionalIdNotFound:
    return TransactionalIdNotFound(
        f"no producer has the transactional id {transactional_id}; list them to see which do"
    )
