"""Access control lists as the cluster's checkpoint has them: who may do what, also after a restore.

Owns their value and its JSON, a member `acls` that readers can do without (see `checkpoint`). Must never hold a
credential: what a password could be found from by trying has no place where every reader of the bucket can try.
"""

from dataclasses import astuple, dataclass, fields
from typing import Final

from tiered.errors import CorruptObject
from tiered.formats.json_fields import Fields

MAX_RULES: Final = 100_000
_MAX_CHARS: Final = {"resource_type": 20, "pattern_type": 16, "host": 64, "operation": 20, "permission": 8}
_MAX_NAME_CHARS: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class AclEntry:
    """One rule; the words are Kafka's, in capitals."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


_NAMES: Final = tuple(each.name for each in fields(AclEntry))


def acls_from(found: Fields, name: str) -> tuple[AclEntry, ...]:
    """The entries in that member. Raises CorruptObject, also for a rule that neither allows nor denies: what is not
    understood must not be left out, for it may deny."""
    objects = found.objects(name)
    if len(objects) > MAX_RULES:
        raise CorruptObject(f"a cluster's checkpoint has {len(objects)} access rules; {MAX_RULES} are possible")
    entries = tuple(
        AclEntry(**{each: its.text(each, max_chars=_MAX_CHARS.get(each, _MAX_NAME_CHARS)) for each in _NAMES})
        for its in objects
    )
    for each in entries:
        if each.permission not in ("ALLOW", "DENY") or each.pattern_type not in ("LITERAL", "PREFIXED"):
            raise CorruptObject(f"a rule {each.permission[:20]!r} of pattern {each.pattern_type[:20]!r} means nothing")
        if any("\0" in text for text in astuple(each)):
            raise CorruptObject("a rule has a zero in its words")
    return entries
