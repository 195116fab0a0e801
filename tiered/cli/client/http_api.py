"""A broker's HTTP door as the command line uses it: one request, JSON back.

Owns one request with its bounds and its errors, and the choice among several addresses. Must never follow a redirect or
use a proxy: it talks to a broker that was named. Must never send a request to a second broker.
"""

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from tiered.cli.arguments import Unnamed
from tiered.cli.client.command_config import command_security
from tiered.cli.failure import CommandFailed, UsageError
from tiered.config.client_security import ClientSecurity, http_login
from tiered.errors import InvalidConfig
from tiered.peer.cluster import FIRST_TRY_MS
from tiered.tls import client_context

TIMEOUT_S = 30.0
MAX_ANSWER_BYTES = 256 << 20
_SHOWN_CHARS = 300
_IS_ALIVE = "/healthz"


class HttpApi:
    """The HTTP API behind `http_url`, for example `http://127.0.0.1:8080`, or behind the first of several addresses,
    with commas between them, where a broker answers."""

    def __init__(
        self, http_url: str, command_config: str | None = None, *, security: ClientSecurity | None = None
    ) -> None:
        """`command_config` names whom to trust for https; the system's certificate authorities without it.

        `security` is used in place of what a `command_config` says.
        """
        security = command_security(command_config).security if security is None else security
        self._addresses = [_address(text.strip(), security) for text in http_url.split(",")]
        self._is_chosen = len(self._addresses) == 1

    @staticmethod
    def beside_kafka(http_url: str, command_config: str | None) -> "HttpApi":
        """For a command that was not told to ask over HTTP: to an address that nobody named it brings no password."""
        if isinstance(http_url, Unnamed):
            return HttpApi(http_url, security=ClientSecurity())
        return HttpApi(http_url, command_config)

    def topics(self) -> list[dict[str, Any]]:
        """Every topic with its partitions."""
        return _list_in(self._ask("GET", "/api/v1/topics"), "topics")

    def topic(self, topic: str) -> dict[str, Any]:
        """One topic with its partitions."""
        answer = self._ask("GET", f"/api/v1/topics/{quote(topic, safe='')}")
        _list_in(answer, "partitions")
        return answer

    def partition(self, topic: str, partition: int, *, start_offset: int = 0) -> dict[str, Any]:
        """One partition with its segments whose records end after `start_offset`; at most one page of them."""
        path = f"/api/v1/topics/{quote(topic, safe='')}/partitions/{partition}/segments?start_offset={start_offset}"
        answer = self._ask("GET", path)
        _list_in(answer, "segments")
        return answer

    def retention(self, topic: str, partition: int) -> dict[str, Any]:
        """What the next round of retention would delete and keep in one partition, and why."""
        answer = self._ask("GET", f"/api/v1/topics/{quote(topic, safe='')}/partitions/{partition}/retention")
        _list_in(answer, "runs")
        return answer

    def cluster(self) -> dict[str, Any]:
        """The cluster with its brokers, as the broker that answers knows them and as each says of itself."""
        answer = self._ask("GET", "/api/v1/cluster")
        _list_in(answer, "brokers")
        return answer

    def cost(self) -> dict[str, Any]:
        """What each topic holds in both tiers, and what that costs by the brokers' prices."""
        answer = self._ask("GET", "/api/v1/cost")
        _list_in(answer, "topics")
        return answer

    def reconcile(self) -> dict[str, Any]:
        """The differences that brokers have found between disk, metadata store and object store."""
        answer = self._ask("GET", "/api/v1/reconcile")
        for name in ("findings", "brokers", "silent"):
            _list_in(answer, name)
        return answer

    def snapshots(self, topic: str | None = None) -> list[dict[str, Any]]:
        """Every snapshot with what it holds, by name; of one topic where that is given."""
        query = "" if topic is None else f"?topic={quote(topic, safe='')}"
        return _list_in(self._ask("GET", f"/api/v1/snapshots{query}"), "snapshots")

    def create_snapshot(self, name: str, topic: str, *, owner: str, ttl_ms: int | None) -> dict[str, Any]:
        """The new snapshot of all that the topic has."""
        body = {"name": name, "topic": topic, "owner": owner, **({} if ttl_ms is None else {"ttl_ms": ttl_ms})}
        return self._ask("POST", "/api/v1/snapshots", body)

    def delete_snapshot(self, name: str) -> None:
        """Returns when retention may take what the snapshot held."""
        self._ask("DELETE", f"/api/v1/snapshots/{quote(name, safe='')}")

    def _ask(self, method: str, path: str, sent: object = None) -> dict[str, Any]:
        """The answer's object; an empty one where the answer has no body, and means success without."""
        if not self._is_chosen:
            self._addresses, self._is_chosen = [self._choose()], True
        (address,) = self._addresses
        status, body = address.request(method, path, sent)
        if len(body) > MAX_ANSWER_BYTES:
            raise CommandFailed(f"{address.url} answered with more than {MAX_ANSWER_BYTES >> 20} MiB")
        if status == http.client.NO_CONTENT:
            return {}
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise CommandFailed(f"{address.url} is no Tiered broker's HTTP address: it answered {status}, no JSON")
        if status not in (http.client.OK, http.client.CREATED):
            raise CommandFailed(str(answer.get("message", f"{address.url} answered {status}"))[:_SHOWN_CHARS])
        return answer

    def _choose(self) -> "_Address":
        """The first address where a broker says that it lives. Raises the last reason why there is none."""
        failure: CommandFailed | None = None
        # One that hangs must not use up the time of the others. Then all have all of it.
        for timeout_s in (FIRST_TRY_MS / 1000.0, TIMEOUT_S):
            has_hung = False
            for address in self._addresses:
                try:
                    address.request("GET", _IS_ALIVE, timeout_s=timeout_s)
                except CommandFailed as error:
                    failure = error
                    has_hung = has_hung or isinstance(error.__cause__, TimeoutError)
                    continue
                return address
            if not has_hung:
                break
        assert failure is not None
        raise failure


@dataclass(frozen=True, slots=True, kw_only=True)
class _Address:
    """Where a broker's HTTP door is, and how it is entered. `url` is for people."""

    url: str
    host: str
    port: int | None
    prefix: str
    tls: ssl.SSLContext | None
    login: Mapping[str, str]

    def request(
        self, method: str, path: str, sent: object = None, *, timeout_s: float = TIMEOUT_S
    ) -> tuple[int, bytes]:
        """Status and body of the answer. Raises CommandFailed where there is none."""
        connection = (
            http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
            if self.tls is None
            else http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=self.tls)
        )
        try:
            content = None if sent is None else json.dumps(sent).encode()
            headers = {"Accept": "application/json", **self.login}
            connection.request(method, self.prefix + path, body=content, headers=headers)
            response = connection.getresponse()
            return response.status, response.read(MAX_ANSWER_BYTES + 1)
        except (http.client.BadStatusLine, ConnectionResetError) as error:
            # A Kafka port closes the connection: it takes the request's first four bytes for a length.
            raise CommandFailed(
                f"what listens at {self.url} speaks no HTTP: is that the Kafka port? Name the HTTP address with "
                "--http URL"
            ) from error
        except ssl.SSLCertVerificationError as error:
            raise CommandFailed(
                f"the certificate of {self.url} is refused: {error.verify_message}; give --command-config a file with "
                "ssl.truststore.location=FILE"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise CommandFailed(
                f"cannot reach {self.url}: is the broker running? Start it with `tiered serve`, or name another "
                f"with --http URL ({str(error) or type(error).__name__})"
            ) from error
        finally:
            connection.close()


def _address(text: str, security: ClientSecurity) -> _Address:
    """Raises UsageError for what is no URL, and where a password would cross the network in the clear."""
    parts = urlsplit(text if "://" in text else f"http://{text}")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
        raise UsageError(f"--http {text} is not allowed: it must be a URL such as http://127.0.0.1:8080")
    try:
        login = http_login(security, parts)
    except InvalidConfig as error:
        raise UsageError(str(error)) from error
    return _Address(
        # Whoever sees an error need not see a password that stands in the URL.
        url=parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in text else text,
        host=parts.hostname,
        port=port,
        prefix=parts.path.rstrip("/"),
        tls=client_context(security) if parts.scheme == "https" else None,
        login=login,
    )


def _list_in(answer: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found = answer.get(key)
    if not isinstance(found, list):
        raise CommandFailed(f"the answer has no list of {key}: is that address a Tiered broker's?")
    return found
