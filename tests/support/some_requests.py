"""A request of each API, and the error codes in its answer."""

import importlib
import random
from typing import Any

from tests.properties.wire.kio_samples import kio_bytes, sample
from tiered.wire import messages


def some_request(api_key: int, version: int, chance: random.Random) -> bytes:
    """A valid request that asks for anything at all, and for something."""
    package = messages.APIS[api_key][0]
    module = importlib.import_module(f"kio.schema.{package}.v{version}.request")
    return kio_bytes(sample(getattr(module, messages.message_class(api_key, version, "request").__name__), chance))


def codes_in(answer: Any) -> list[int]:
    """Every error code of an answer, at whatever depth."""
    if isinstance(answer, tuple | list):
        return [code for each in answer for code in codes_in(each)]
    plan = getattr(answer, "plan", None)
    if plan is None:
        return []
    found: list[int] = []
    for field in plan.fields:
        value = getattr(answer, field.name)
        found += [value] if field.name in ("error_code", "partition_error_code") else codes_in(value)
    return found
