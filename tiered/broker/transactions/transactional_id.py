"""What is said of a transactional id that nobody has."""

from tiered.errors import TransactionalIdNotFound


def not_found(transactional_id: str) -> TransactionalIdNotFound:
    return TransactionalIdNotFound(
        f"no producer has the transactional id {transactional_id}; list them to see which do"
    )
