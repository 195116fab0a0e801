"""Option `catalog`: requests to the HTTP door of whichever broker answers.

Owns how often they are tried, where, and for how long. Must never send credentials to anybody but these addresses.
"""

import http.client
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from tiered.errors import InvalidRequest, MetadataUnavailable
from tiered.peer.security import PLAINTEXT, ClientSecurity, http_login
from tiered.tls import client_context

_TIMEOUT_S = 10.0
_ROUNDS, _PAUSE_S = 3, 0.5
_MAX_ANSWER_BYTES = 64 << 20


class RefusedOverHttp(InvalidRequest):
    """A broker's refusal, in its words, with the status of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class BrokersHttp:
    """The brokers' HTTP addresses, and who asks. Each request asks them in turn, a few times, until one answers.

    `otherwise` says what to do where none does.
    """

    def __init__(self, urls: Sequence[str], security: ClientSecurity = PLAINTEXT, *, otherwise: str) -> None:
        assert urls, "there is an address"
        self._urls = tuple(urls)
        self._security = security
        self._otherwise = otherwise

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        rounds: int = _ROUNDS,
        timeout_s: float = _TIMEOUT_S,
    ) -> dict[str, Any]:
        """The answer's JSON. Raises `RefusedOverHttp`, and `MetadataUnavailable` when no broker answers."""
        failure = "it was not asked"
        for number in range(rounds):
            if number:
                threading.Event().wait(_PAUSE_S)
            for url in self._urls:
                try:
                    return self._request(url, method, path, body, timeout_s)
                except (OSError, http.client.HTTPException) as error:
                    failure = f"{url} does not answer: {error!r}"
                except MetadataUnavailable as error:
                    failure = f"{url} says: {error}"
        raise MetadataUnavailable(f"option catalog: {failure}; {self._otherwise}")

    def _request(
        self, url: str, method: str, path: str, body: Mapping[str, object] | None, timeout_s: float
    ) -> dict[str, Any]:
        """Raises OSError and HTTPException where there is no answer."""
        address = urlsplit(url)
        assert address.hostname is not None, "checked with the options"
        connection: http.client.HTTPConnection
        if address.scheme == "https":
            tls = client_context(self._security)
            connection = http.client.HTTPSConnection(address.hostname, address.port, timeout=timeout_s, context=tls)
        else:
            connection = http.client.HTTPConnection(address.hostname, address.port, timeout=timeout_s)
        try:
            data = None if body is None else json.dumps(body).encode()
            headers = http_login(self._security, address)
            if data:
                headers["Content-Type"] = "application/json"
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            answer = response.read(_MAX_ANSWER_BYTES)
        finally:
            connection.close()
        try:
            found = json.loads(answer) if answer else {}
        except ValueError:
            found = {}
        if response.status < 300 and isinstance(found, dict):
            return found
        said = found.get("message") if isinstance(found, dict) else None
        message = str(said or f"HTTP {response.status} is no answer of a broker")
        if response.status >= 500:
            raise MetadataUnavailable(message)
        if response.status in (401, 403):
            message = f"option catalog: {message}"
        raise RefusedOverHttp(response.status, message)
