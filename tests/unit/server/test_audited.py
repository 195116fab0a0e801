"""What the audit log says of a request never fails, in whatever version and however odd, and never grows with it."""

import importlib
import json
import random

import pytest

from tests.properties.wire.kio_samples import kio_bytes, sample
from tiered.server.kafka.apis import served_apis
from tiered.server.kafka.audited import AUDITED, Entry
from tiered.wire import messages

VERSIONS = [
    (api.key, version)
    for api in served_apis()
    if api.key in AUDITED
    for version in range(api.min_version, api.max_version + 1)
]


def some(api_key: int, version: int, kind: str, chance: random.Random) -> object:
    package = messages.APIS[api_key][0]
    module = importlib.import_module(f"kio.schema.{package}.v{version}.{kind}")
    data = kio_bytes(sample(getattr(module, messages.message_class(api_key, version, kind).__name__), chance))
    decode = messages.request_decoder if kind == "request" else messages.response_decoder
    return decode(api_key, version)(data, 0)


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_any_request_is_told_of_with_its_answer_and_without(api_key: int, version: int) -> None:
    for seed in range(20):
        chance = random.Random(seed)
        request = some(api_key, version, "request", chance)
        for answer in (None, some(api_key, version, "response", chance)):
            for entry in AUDITED[api_key](request, answer):
                assert isinstance(entry, Entry)
                assert (entry.code is None) is (answer is None)
                json.dumps(entry.details)
