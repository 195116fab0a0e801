"""Fetch sessions (KIP-227), which are declined: what a request that believes in one is told.

Owns that decision alone. Every answer has session id 0, so clients send full requests.
"""

from tiered.wire.error_codes import FETCH_SESSION_ID_NOT_FOUND, NONE
from tiered.wire.fetch import FetchRequest

NO_SESSION = 0
FULL_EPOCHS = (0, -1)
"""Of a request that names all its partitions: one that would begin a session, and one that wants none."""


def session_error(asked: FetchRequest) -> int:
    """NONE for a full request, whatever session id it carries: it would at most end that session."""
    return NONE if asked.session_epoch in FULL_EPOCHS else FETCH_SESSION_ID_NOT_FOUND
