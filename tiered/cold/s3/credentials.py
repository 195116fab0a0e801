"""Credentials for S3 from AWS's usual chain (environment, files, a process, a role), read again when they may be new.

boto3 reads the chain once, and only some of its links renew what they gave. Owns when it is read again: when a file of
the chain has changed, and when the store refuses credentials, one thread at a time. Must never print a credential.
"""

import logging
import threading
from pathlib import Path

import botocore.session
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError, CredentialRetrievalError

from tiered.runtime import Clock
from tiered.tls import Stamp, stamp_of

log = logging.getLogger(__name__)

PAUSE_MS = 5_000.0
"""After refusals the chain is read at most this often: a process or a service may stand behind it."""


class RenewedCredentials(Credentials):
    """What requests are signed with. Given to a session as its provider of credentials, and to the client as those."""

    def __init__(self, clock: Clock) -> None:
        """Raises BotoCoreError or ClientError for a chain that cannot be read."""
        super().__init__("", "", method="tiered")
        self._clock = clock
        self._reading = threading.Lock()
        self._files: tuple[Path, ...] = ()
        self._stamp: Stamp = ()
        self._read_at_ms = float("-inf")
        self._latest: ReadOnlyCredentials | None = None
        self.generation = 0
        """Grows with each change of the credentials."""
        self._source = self._read()

    def load_credentials(self) -> "RenewedCredentials":
        """As a session's provider of credentials."""
        return self

    def get_frozen_credentials(self) -> ReadOnlyCredentials | None:  # type: ignore[override] # botocore takes None, too
        """For the request that begins now."""
        # A thread that meets another one's reading signs with what was there before.
        if stamp_of(self._files) != self._stamp and self._reading.acquire(blocking=False):
            try:
                self._read_again()
            finally:
                self._reading.release()
        self._latest = _frozen(self._source)
        return self._latest

    def renew(self, refused: int) -> bool:
        """Whether there are others than those of the generation that the store has just refused."""
        with self._reading:
            is_due = self._clock.monotonic_ms() - self._read_at_ms >= PAUSE_MS
            if self.generation == refused and is_due:
                self._read_again()
            return self.generation != refused

    def _read_again(self) -> None:
        try:
            source = self._read()
            frozen = _frozen(source)
        except (BotoCoreError, ClientError) as error:
            log.warning(
                "the credentials for the store cannot be read again (%s); those from before stay", type(error).__name__
            )
            return
        # A file that is being written may have none at this moment.
        if frozen is not None and frozen != self._latest:
            self._source, self._latest = source, frozen
            self.generation += 1
            log.info("the store is used with new credentials")

    def _read(self) -> Credentials | None:
        self._read_at_ms = self._clock.monotonic_ms()
        session = botocore.session.Session()
        names = (session.get_config_variable("credentials_file"), session.get_config_variable("config_file"))
        self._files = tuple(Path(name).expanduser() for name in names if name)
        self._stamp = stamp_of(self._files)
        return session.get_credentials()


def _frozen(source: Credentials | None) -> ReadOnlyCredentials | None:
    if source is None:
        return None
    try:
        return source.get_frozen_credentials()
    except RuntimeError as error:
        # botocore's, where what it was given anew has expired already.
        raise CredentialRetrievalError(provider=source.method, error_msg=str(error)) from error
