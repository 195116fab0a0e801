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
    sentence = lacks(principal, operation, resource_type, name)
    if is_id or not principal or len(name) > MAX_SHOWN_NAME:
        return sentence
    return f"{sentence}; `{giving_command(principal, operation, resource_type, name)}` gives it"


def lacks(principal: str, operation: Operation, resource_type: ResourceType, name: str) -> str:
    """Who lacks which right on what."""
    what = f"{resource_type.name.lower().replace('_', ' ')} {name[:MAX_SHOWN_NAME]}"
    if resource_type is ResourceType.CLUSTER:
        what = "the cluster"
    return f"{principal or NOBODY} lacks the right {operation.name} on {what}"


def giving_command(principal: str, operation: Operation, resource_type: ResourceType, name: str) -> str:
    """The command that gives the right, ready to be pasted."""
    options = ["--principal", principal, "--operation", operation.name.lower().replace("_", "-")]
    if resource_type is ResourceType.CLUSTER:
        options.append("--cluster")
    else:
        options += [f"--{resource_type.name.lower().replace('_', '-')}", name]
    return f"tiered acls add {shlex.join(options)}"
