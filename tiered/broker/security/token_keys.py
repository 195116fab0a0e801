"""The keys that tokens are checked with, from the one address that the settings name.

Owns the copy of them, its age and the next attempt. Keys stay when the address is away: then tokens by new keys are
refused, and others are not. Must never ask an address that a token names.
"""

import asyncio
import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from tiered.config.security import AuthenticationSettings
from tiered.errors import InvalidConfig
from tiered.rules.security.sasl.failures import AuthenticationFailed
from tiered.rules.security.sasl.token import read_keys
from tiered.runtime import Clock

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

log = logging.getLogger(__name__)

MAX_BYTES = 1 << 20
DEADLINE_S = 5.0
_FILE = "file://"


class TokenKeys:
    """The keys of one address. `of` gives them, and asks for new ones when it is time."""

    def __init__(self, settings: AuthenticationSettings, clock: Clock) -> None:
        self._url = settings.sasl_oauthbearer_jwks_endpoint_url
        self._ca_location = settings.tiered_sasl_oauthbearer_jwks_ca_location
        self._refresh_ms = settings.sasl_oauthbearer_jwks_endpoint_refresh_ms
        self._backoff_ms = settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms
        self._clock = clock
        self._turn = asyncio.Lock()
        self._keys: KeySet | None = None
        self._known: frozenset[str] = frozenset()
        self._read_at_ms = self._tried_at_ms = float("-inf")

    async def of(self, key_id: str | None) -> "KeySet":
        """The keys, with that of the id when there is one. Raises AuthenticationFailed while there are none at all."""
        if self._is_due(key_id):
            async with self._turn:
                if self._is_due(key_id):  # Another request fetched them while this one waited for its turn.
                    await self._refresh()
        if self._keys is None:
            raise AuthenticationFailed("tokens cannot be checked now: their keys cannot be had; try again later")
        return self._keys

    def _is_due(self, key_id: str | None) -> bool:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._tried_at_ms < self._backoff_ms:
            return False
        is_unknown = key_id is not None and key_id not in self._known
        return self._keys is None or is_unknown or now_ms - self._read_at_ms >= self._refresh_ms

    async def _refresh(self) -> None:
        self._tried_at_ms = self._clock.monotonic_ms()
        try:
            async with asyncio.timeout(DEADLINE_S):
                if self._url.startswith(_FILE):
                    text = await asyncio.to_thread(_read_file, Path(self._url.removeprefix(_FILE)))
                else:
                    text = await self._get()
            keys = read_keys(text)
        except (OSError, TimeoutError, InvalidConfig) as error:
            kept = "those from before stay" if self._keys is not None else "nobody can log in by a token"
            why = str(error) or "no answer in time"
            log.error("keys of tokens cannot be had from %s: %s; %s", self._url, why, kept)
            return
        self._keys = keys
        self._known = frozenset(key.kid for key in keys if key.kid is not None)
        self._read_at_ms = self._clock.monotonic_ms()

    async def _get(self) -> bytes:
        import aiohttp

        context = await asyncio.to_thread(ssl.create_default_context, cafile=self._ca_location or None)
        try:
            async with (
                aiohttp.ClientSession(trust_env=False) as session,
                session.get(self._url, allow_redirects=False, ssl=context) as answer,
            ):
                if answer.status != 200:
                    raise OSError(f"the answer has status {answer.status}; redirections are not followed")
                found = bytearray()
                async for chunk in answer.content.iter_chunked(64 << 10):
                    found += chunk
                    if len(found) > MAX_BYTES:
                        raise OSError(f"the answer is larger than {MAX_BYTES} bytes")
                return bytes(found)
        except aiohttp.ClientError as error:
            raise OSError(str(error)) from None


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES)
