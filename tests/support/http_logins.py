"""Requests over HTTP in somebody's name."""

import json
import urllib.request
from typing import Any

from tests.components.guarded_broker import GuardedBroker


def ask(
    guarded: GuardedBroker, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **(headers or {})}
    url = f"http://127.0.0.1:{guarded.http_port}{path}"
    request = urllib.request.Request(url, data=data, headers=sent, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text.startswith((b"{", b"[")) else text
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
