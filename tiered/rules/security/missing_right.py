"""The words of a refusal, for brokers and commands alike: who lacks which right on what, and what gives it.

Owns these words. Pure. Must never say anything of the resource but the name that was asked for.
"""

import shlex

from tiered.rules.security.acl import Operation, ResourceType

MAX_SHOWN_NAME = 80
NOBODY = "who is not logged in"


def missing_right(
    principal: str, operation: Operation, resource_type: ResourceType, name: str, *, is_id: bool = False
) -> str:
    """The sentence; without a command where the name is an id, or is too long, or nobody is logged in."""
    is_cluster = resource_type is ResourceType.CLUSTER
    kind = resource_type.name.lower()
    what = "the cluster" if is_cluster else f"{kind.replace('_', ' ')} {name[:MAX_SHOWN_NAME]}"
    said = f"{principal or NOBODY} lacks the right {operation.name} on {what}"
    if is_id or not principal or len(name) > MAX_SHOWN_NAME:
        return said
    options = ["--principal", principal, "--operation", operation.name.lower().replace("_", "-")]
    options += ["--cluster"] if is_cluster else [f"--{kind.replace('_', '-')}", name]
    return f"{said}; `tiered acls add {shlex.join(options)}` gives it"
