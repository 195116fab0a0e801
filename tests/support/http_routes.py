"""A request for each route of the HTTP door."""

from typing import Any

from tests.components.rights_table import ABSENT, KNOWN


def path_of(cluster_id: str, route: str, name: str) -> str:
    """The path of a route, about what has this name."""
    for parameter, value in (
        ("{cluster_id}", cluster_id), ("{topic}", name), ("{topic_name}", name), ("{group}", name),
        ("{transactional_id}", name),
        ("{consumer_group_id}", name), ("{partition}", "0"), ("{partition_id}", "0"), ("{broker_id}", "1"),
        ("{name}", "retention.ms"), ("{consumer_id}", "m"), ("{snapshot}", name),
        ("{pin}", "00000000-0000-0000-0000-000000000001"), ("{user}", name),
    ):  # fmt: skip
        route = route.replace(parameter, value)
    return route


TRANSACTION = {"transactional_id": KNOWN, "producer_id": 1, "producer_epoch": 0}
RULE = {"resource_type": "TOPIC", "resource_name": KNOWN, "principal": "User:mallory", "operation": "ALL"}
PASSWORD = "as-long-as-it-is-secret"
BODIES: dict[str, Any] = {
    "POST /api/v1/topics": {"name": ABSENT},
    "PATCH /api/v1/topics/{topic}/configs": {"set": {"retention.ms": "1"}},
    "POST /api/v1/topics/{topic}/partitions/{partition}/delete-records": {"before_offset": -1},
    "POST /api/v1/groups/{group}/offsets/reset": {"topic": KNOWN, "to": "latest"},
    "POST /api/v1/snapshots": {"name": "s", "topic": KNOWN},
    "POST /api/v1/pins": {"topic": KNOWN},
    "POST /api/v1/transaction-commits": {"key": "k", "transactions": [TRANSACTION]},
    "POST /api/v1/transaction-aborts": {"transactions": [TRANSACTION]},
    "POST /api/v1/acls": {"acls": [RULE]},
    "POST /api/v1/acls/remove": {"acls": [RULE]},
    "POST /api/v1/users": {"name": "mallory", "password": PASSWORD},
    "PUT /api/v1/users/{user}/password": {"password": PASSWORD},
    "PATCH /api/v1/quotas": {"entity": {"user": "mallory"}, "set": {"producer_byte_rate": 1}},
    "POST /v3/clusters/{cluster_id}/topics": {"topic_name": ABSENT},
    "PATCH /v3/clusters/{cluster_id}/topics/{topic_name}": {"partitions_count": 2},
    "POST /v3/clusters/{cluster_id}/topics/{topic_name}/records": {"value": {"type": "STRING", "data": "x"}},
}
CHANGE = {"data": [{"name": "retention.ms", "value": "1"}]}


def body_of(route: str) -> Any:
    """What is sent to it; None for no body."""
    return (
        CHANGE if route.endswith("configs:alter") else BODIES.get(route, {"value": "1"} if route[:3] == "PUT" else None)
    )
