"""Every message of the protocol by API key and version: decoders, constructors, and the encoder.

Owns the table of APIs and the lazy import of their schemas. Produce and Fetch have codecs of their own; they
are here as well, for tests and tools. Values are raw: error codes are numbers, durations and times are
milliseconds (-1 where the protocol's time is null), ids are `UUID` or None for zeros, arrays are tuples.

kio's own decoder is not used: it allocates by the announced count of an array, so that a request of five
bytes aborts the process (kio 0.6.5).
"""

import importlib
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

from tiered.errors import UnsupportedVersion
from tiered.wire.decoders import Decoder, PiecewiseDecoder, decoder, decoder_in_pieces
from tiered.wire.encoders import encode, encode_in_pieces
from tiered.wire.kio_imports import leave_hypothesis_out
from tiered.wire.schema import REQUIRED, Message, freed_in_pieces, plan_of
from tiered.wire.source import Source

__all__ = [
    "APIS",
    "Messages",
    "encode",
    "encode_in_pieces",
    "freed_in_pieces",
    "reply",
    "request",
    "request_decoder",
    "request_decoder_in_pieces",
    "response_decoder",
]

leave_hypothesis_out()

# (kio's package, first version, last version)
APIS: dict[int, tuple[str, int, int]] = {
    0: ("produce", 3, 13),
    1: ("fetch", 4, 18),
    2: ("list_offsets", 1, 11),
    3: ("metadata", 0, 13),
    8: ("offset_commit", 2, 10),
    9: ("offset_fetch", 1, 10),
    10: ("find_coordinator", 0, 6),
    11: ("join_group", 0, 9),
    12: ("heartbeat", 0, 4),
    13: ("leave_group", 0, 5),
    14: ("sync_group", 0, 5),
    15: ("describe_groups", 0, 6),
    16: ("list_groups", 0, 5),
    17: ("sasl_handshake", 0, 1),
    18: ("api_versions", 0, 4),
    19: ("create_topics", 2, 7),
    20: ("delete_topics", 1, 6),
    21: ("delete_records", 0, 2),
    22: ("init_producer_id", 0, 6),
    23: ("offset_for_leader_epoch", 2, 4),
    24: ("add_partitions_to_txn", 0, 5),
    25: ("add_offsets_to_txn", 0, 4),
    26: ("end_txn", 0, 5),
    27: ("write_txn_markers", 1, 2),
    28: ("txn_offset_commit", 0, 5),
    29: ("describe_acls", 1, 3),
    30: ("create_acls", 1, 3),
    31: ("delete_acls", 1, 3),
    32: ("describe_configs", 1, 4),
    33: ("alter_configs", 0, 2),
    34: ("alter_replica_log_dirs", 1, 2),
    35: ("describe_log_dirs", 1, 5),
    36: ("sasl_authenticate", 0, 2),
    37: ("create_partitions", 0, 3),
    38: ("create_delegation_token", 1, 3),
    39: ("renew_delegation_token", 1, 2),
    40: ("expire_delegation_token", 1, 2),
    41: ("describe_delegation_token", 1, 3),
    42: ("delete_groups", 0, 2),
    43: ("elect_leaders", 0, 2),
    44: ("incremental_alter_configs", 0, 1),
    45: ("alter_partition_reassignments", 0, 1),
    46: ("list_partition_reassignments", 0, 0),
    47: ("offset_delete", 0, 0),
    48: ("describe_client_quotas", 0, 1),
    49: ("alter_client_quotas", 0, 1),
    50: ("describe_user_scram_credentials", 0, 0),
    51: ("alter_user_scram_credentials", 0, 0),
    55: ("describe_quorum", 0, 2),
    57: ("update_features", 0, 2),
    60: ("describe_cluster", 0, 2),
    61: ("describe_producers", 0, 0),
    64: ("unregister_broker", 0, 0),
    65: ("describe_transactions", 0, 0),
    66: ("list_transactions", 0, 2),
    68: ("consumer_group_heartbeat", 0, 1),
    69: ("consumer_group_describe", 0, 1),
    71: ("get_telemetry_subscriptions", 0, 0),
    72: ("push_telemetry", 0, 0),
    74: ("list_config_resources", 0, 1),
    75: ("describe_topic_partitions", 0, 0),
    76: ("share_group_heartbeat", 1, 1),
}
"""The APIs whose messages are here. A wider range than what a broker serves, which is dispatch's business."""

# Fields that neither the first nor the last version of their message has, and that must be ignored all the same.
MIDDLE_FIELDS: dict[tuple[str, str], frozenset[str]] = {
    ("fetch.request", "ForgottenTopic"): frozenset({"topic"}),
    ("metadata.request", "MetadataRequest"): frozenset({"include_cluster_authorized_operations"}),
    ("metadata.response", "MetadataResponse"): frozenset({"cluster_authorized_operations"}),
    ("offset_fetch.request", "OffsetFetchRequestTopics"): frozenset({"name"}),
    ("offset_fetch.response", "OffsetFetchResponsePartition"): frozenset({"committed_leader_epoch"}),
    ("offset_fetch.response", "OffsetFetchResponse"): frozenset({"error_code"}),
    ("offset_fetch.response", "OffsetFetchResponseTopics"): frozenset({"name"}),
    ("find_coordinator.response", "FindCoordinatorResponse"): frozenset({"error_message"}),
}


class Messages:
    """The constructors of one version's messages, as attributes with kio's class names.

    They take keyword arguments only. Fields of other versions of the same API are ignored, so that one handler
    serves all versions; any other name is a TypeError, and so is a missing field that has no default. A
    structure that only other versions have can be made as well: it ends in a field that is ignored.
    """

    def __init__(self, api_key: int, api_version: int, kind: str) -> None:
        self._api_key = api_key
        self._api_version = api_version
        self._kind = kind
        _module(api_key, api_version, kind)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        _, first, last = APIS[self._api_key]
        for version in (self._api_version, last, first):
            kio_class = getattr(_module(self._api_key, version, self._kind), name, None)
            if isinstance(kio_class, type) and hasattr(kio_class, "__flexible__"):
                constructor = _constructor(plan_of(kio_class).message_class, self._api_key, self._kind)
                self.__dict__[name] = constructor
                return constructor
        raise AttributeError(f"{APIS[self._api_key][0]} has no {name} in its {self._kind}s")


@cache
def reply(api_key: int, api_version: int) -> Messages:
    """The constructors of a response and its structures. Raises UnsupportedVersion."""
    return Messages(api_key, api_version, "response")


@cache
def request(api_key: int, api_version: int) -> Messages:
    """The constructors of a request and its structures. Raises UnsupportedVersion."""
    return Messages(api_key, api_version, "request")


@cache
def request_decoder(api_key: int, api_version: int) -> Decoder:
    """(bytes, position of the body) -> request; it raises MalformedRequest. This one raises UnsupportedVersion."""
    return decoder(message_class(api_key, api_version, "request"))


@cache
def request_decoder_in_pieces(api_key: int, api_version: int) -> PiecewiseDecoder:
    """A decoder for a request of very many items. It gives a generator, which reads a piece with each step and returns
    the request. Raises as `request_decoder` does."""
    return decoder_in_pieces(message_class(api_key, api_version, "request"))


@cache
def response_decoder(api_key: int, api_version: int) -> Decoder:
    """(bytes, position of the body) -> response; it raises MalformedRequest. This one raises UnsupportedVersion."""
    return decoder(message_class(api_key, api_version, "response"))


def message_class(api_key: int, api_version: int, kind: str) -> type[Message]:
    """The class of a whole message; `kind` is "request" or "response"."""
    module = _module(api_key, api_version, kind)
    name = APIS[api_key][0].title().replace("_", "") + kind.title()
    return plan_of(getattr(module, name)).message_class


def _module(api_key: int, api_version: int, kind: str) -> ModuleType:
    package, first, last = APIS.get(api_key, ("", 0, -1))
    if not first <= api_version <= last:
        raise UnsupportedVersion(f"version {api_version} of API key {api_key} is not known; see ApiVersions")
    return importlib.import_module(f"kio.schema.{package}.v{api_version}.{kind}")


def _constructor(made_class: type[Message], api_key: int, kind: str) -> Callable[..., Message]:
    """A compiled function of keyword arguments; it has the name of its class, for the sake of its TypeErrors."""
    fields = made_class.plan.fields
    source = Source()
    arguments = [
        field.name if field.default is REQUIRED else f"{field.name}={source.constant(field.default)}"
        for field in fields
    ]
    by_name = ["*", *arguments] if arguments else []
    with source.block(f"def {made_class.__name__}({', '.join([*by_name, '**others'])}):"):
        with source.block("if others:"):
            source.line("check(others)")
        source.line("made = new()")
        for field in fields:
            source.line(f"made.{field.name} = {field.name}")
        source.line("return made")

    def check(others: dict[str, Any]) -> None:
        known = _fields_elsewhere(made_class.__name__, api_key, kind)
        for name in others:
            if name not in known:
                raise TypeError(f"{made_class.__name__} has no field {name} in any version")

    constructor: Callable[..., Message] = source.build(made_class.__name__, check=check, new=made_class)
    return constructor


@cache
def _fields_elsewhere(name: str, api_key: int, kind: str) -> frozenset[str]:
    """The fields of class `name` in other versions. Looks at the first and the last one, to import no more."""
    package, first, last = APIS[api_key]
    known = set(MIDDLE_FIELDS.get((f"{package}.{kind}", name), ()))
    for version in (first, last):
        kio_class = getattr(_module(api_key, version, kind), name, None)
        if kio_class is not None:
            known |= {field.name for field in plan_of(kio_class).fields}
    return frozenset(known)
