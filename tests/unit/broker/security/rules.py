"""Rules of access, made in few words."""

from tiered.meta.security import AclRow


def reads(name: str) -> AclRow:
    """Ann may read this topic."""
    return AclRow(
        resource_type="TOPIC",
        resource_name=name,
        pattern_type="LITERAL",
        principal="User:ann",
        host="*",
        operation="READ",
        permission="ALLOW",
    )
