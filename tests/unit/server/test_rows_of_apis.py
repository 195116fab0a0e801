"""What the row of a Kafka API says of it agrees with the rights that tests find it to need."""

import re

import pytest

from tests.components.rights_table import ROWS
from tiered.server.kafka.apis import replica_apis, served_apis
from tiered.server.kafka.dispatch import Api, Refused

NEEDED = {api.key: {right for row in ROWS if row.key == api.key for right in row.rights} for api in served_apis()}
"""By the key of the API. `test_rights_of_every_api` asks a broker for each, with the right and without it."""
ADMINISTRATION = {"CREATE", "DELETE", "ALTER", "ALTER_CONFIGS"}
CHANGES = ADMINISTRATION | {"WRITE", "IDEMPOTENT_WRITE"}
SERVED = pytest.mark.parametrize("api", served_apis(), ids=lambda api: api.name)
READ_REPLICA = [api for api in replica_apis() if api.raw is None]
"""Produce and Fetch have tests of their own."""


def operations(api: Api) -> set[str]:
    return {operation for operation, _ in NEEDED[api.key]}


@SERVED
def test_every_served_api_has_a_row_in_the_table_of_rights(api: Api) -> None:
    assert any(row.key == api.key for row in ROWS), (
        f"add a row for {api.name} (key {api.key}) to tests/components/rights_table.py: a request about a name, the "
        "rights that it needs, and the error code without them"
    )


@SERVED
def test_the_rights_of_an_api_are_told_in_words(api: Api) -> None:
    for operation, kind in NEEDED[api.key]:
        told = re.search(rf"\b{operation}\b.*\b{kind.lower().replace('_', ' ')}\b", api.rights)
        assert told, (
            f"{api.name} needs {operation} on a {kind}, but `rights` of its row in server/kafka/api says "
            f"{api.rights!r}: correct it, then run `make generated`"
        )


@SERVED
def test_the_audit_log_tells_of_each_api_that_needs_a_right_to_change_something(api: Api) -> None:
    if operations(api) & ADMINISTRATION:
        assert api.audit is not None, f"{api.name} changes something: give its row `audit`, which says of what"
    else:
        assert api.audit is None, f"{api.name} needs no right of administration, so its row needs no `audit`"


@pytest.mark.parametrize("api", READ_REPLICA, ids=lambda api: api.name)
def test_a_read_replica_refuses_each_api_that_needs_a_right_to_change_something(api: Api) -> None:
    if operations(api) & CHANGES:
        assert isinstance(api.on_replica, Refused), (
            f"{api.name} changes something: let its row say on_replica=Refused()"
        )
