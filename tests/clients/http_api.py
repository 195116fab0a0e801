"""The HTTP door as a program uses it: a method, a path, JSON there and back."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from tests.broker_process import BrokerProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back. `body` is None where there was none."""

    status: int
    body: Any

    @property
    def message(self) -> str:
        """An error's words; the code beside them must be the status."""
        assert self.body["error_code"] == self.status, self.body
        return str(self.body["message"])


def ask(broker: BrokerProcess, method: str, path: str, body: Any = None, *, raw: bytes | None = None) -> Answer:
    """One request under /api/v1, with `body` as JSON or `raw` as it is."""
    data = raw if raw is not None else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{broker.http}/api/v1{path}", method=method, data=data)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return Answer(status=answer.status, body=_parsed(answer.read()))
    except urllib.error.HTTPError as error:
        return Answer(status=error.code, body=_parsed(error.read()))


def _parsed(content: bytes) -> Any:
    return json.loads(content) if content else None
