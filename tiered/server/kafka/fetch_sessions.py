"""Fetch sessions (KIP-227), which are declined: what a request that believes in one is told.

Owns that decision alone. Every answer has session id 0, so clients send full requests.
"""

from tiered.server.kafka.error_mapping import FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, NONE
from tiered.wire.fetch import FetchRequest

NO_SESSION = 0
FULL, SESSIONLESS = 0, -1


def session_error(asked: FetchRequest) -> int:
    """Only requests for a new session, which is declined, or without one are possible here."""
    if asked.session_id != NO_SESSION:
        return FETCH_SESSION_ID_NOT_FOUND
    if asked.session_epoch not in (FULL, SESSIONLESS):
        return INVALID_FETCH_SESSION_EPOCH
    return NONE
