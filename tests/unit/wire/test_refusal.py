"""An answer with one error can be read by whoever asked, in every version of every API."""

import importlib
import random
from typing import Any

import pytest

from tests.properties.wire.kio_samples import sample
from tiered.errors import MalformedRequest
from tiered.wire import messages
from tiered.wire.refusal import MAX_PARTS, refusal
from tiered.wire.schema import raw_value

CODE = 35


def codes_in(message: Any) -> list[int]:
    if isinstance(message, tuple):
        return [code for each in message for code in codes_in(each)]
    fields = message.plan.fields if hasattr(message, "plan") else ()
    found = [getattr(message, each.name) for each in fields if each.kafka_type == "error_code"]
    return found + [code for each in fields for code in codes_in(getattr(message, each.name))]


@pytest.mark.parametrize("api_key", messages.APIS, ids=lambda key: messages.APIS[key][0])
def test_every_version_of_every_api_can_be_refused(api_key: int) -> None:
    package, first, last = messages.APIS[api_key]
    for version in range(first, last + 1):
        module = importlib.import_module(f"kio.schema.{package}.v{version}.request")
        kio_class = getattr(module, messages.message_class(api_key, version, "request").__name__)
        codes = []
        for seed in range(4):
            asked = raw_value(sample(kio_class, random.Random(seed)))
            made = refusal(api_key, version, asked, CODE, "no")
            assert messages.response_decoder(api_key, version)(messages.encode(made), 0) == made
            codes += codes_in(made)
        assert set(codes) == {CODE}, version


def test_what_was_asked_for_is_named_again_with_the_error() -> None:
    r = messages.request(27, 1)
    topic = r.WritableTxnMarkerTopic(name="t", partition_indexes=(3, 5))
    marker = r.WritableTxnMarker(
        producer_id=9, producer_epoch=0, transaction_result=True, topics=(topic,), coordinator_epoch=0
    )
    answered = refusal(27, 1, r.WriteTxnMarkersRequest(markers=(marker,)), CODE, "no").markers[0]  # type: ignore[attr-defined]
    assert answered.producer_id == 9
    assert [(each.name, [p.partition_index for p in each.partitions]) for each in answered.topics] == [("t", [3, 5])]
    r = messages.request(65, 0)
    answer: Any = refusal(65, 0, r.DescribeTransactionsRequest(transactional_ids=("a", "b")), CODE, "no")
    assert [each.transactional_id for each in answer.transaction_states] == ["a", "b"]


def test_what_is_refused_takes_no_long_step_however_much_is_asked_for() -> None:
    r = messages.request(24, 3)
    topic = r.AddPartitionsToTxnTopic(name="t", partitions=tuple(range(MAX_PARTS)))
    asked = r.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=(topic,),
    )
    with pytest.raises(MalformedRequest, match="parts of a request"):
        refusal(24, 3, asked, CODE, "no")
