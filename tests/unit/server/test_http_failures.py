"""`messages.failures`: which status an error has, over our own API and over Confluent's."""

import pytest

from tiered import errors
from tiered.server.http.messages.failures import (
    NoSuchResource,
    RefusedElsewhere,
    status_of,
    v3_refusal,
    v3_status_and_code,
)


def kinds(base: type[errors.TieredError] = errors.TieredError) -> list[type[errors.TieredError]]:
    return [base, *(kind for each in base.__subclasses__() for kind in kinds(each) if kind is not RefusedElsewhere)]


@pytest.mark.parametrize(
    ("error", "status", "v3"),
    [
        (errors.MetadataOutcomeUnknown, 503, (503, 50003)),
        (errors.UnknownTopicOrPartition, 404, (404, 40403)),
        (errors.InvalidPartitions, 400, (400, 40002)),
        (errors.TopicExists, 409, (400, 40002)),
        (errors.TopicNotAuthorized, 403, (403, 40301)),
        (errors.FencedLeaderEpoch, 409, (409, 409)),
        (errors.RequestTimedOut, 504, (503, 50003)),
        (NoSuchResource, 404, (404, 404)),
    ],
)
def test_an_error_has_the_status_of_its_nearest_kind(
    error: type[errors.TieredError], status: int, v3: tuple[int, int]
) -> None:
    assert status_of(error("no")) == status
    assert v3_status_and_code(error("no")) == v3


def test_what_may_succeed_later_never_looks_like_the_clients_fault() -> None:
    for kind in kinds(errors.Retriable):
        error = kind.__new__(kind)
        if status_of(error) not in (404, 409, 429):
            assert status_of(error) >= 500, kind
            assert v3_status_and_code(error)[0] >= 500, kind


@pytest.mark.parametrize(("code", "status"), [(40403, 404), (42901, 429), (408, 408), (7, 500)])
def test_a_refusal_elsewhere_has_the_status_that_its_code_stands_for(code: int, status: int) -> None:
    assert v3_status_and_code(v3_refusal("no", code)) == (status, code)
