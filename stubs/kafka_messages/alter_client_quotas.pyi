from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class AlterClientQuotasRequest:
    entries: Sequence[EntryData]
    validate_only: bool

@final
@dataclass(kw_only=True)
class EntryData:
    entity: Sequence[EntityData]
    ops: Sequence[OpData]

@final
@dataclass(kw_only=True)
class EntityData:
    entity_type: str
    entity_name: str | None

@final
@dataclass(kw_only=True)
class OpData:
    key: str
    value: float
    remove: bool

class Replies:
    @final
    @dataclass(kw_only=True)
    class AlterClientQuotasResponse:
        throttle_time: int = ...
        entries: Sequence[Replies.EntryData]

    @final
    @dataclass(kw_only=True)
    class EntryData:
        error_code: int
        error_message: str | None
        entity: Sequence[Replies.EntityData]

    @final
    @dataclass(kw_only=True)
    class EntityData:
        entity_type: str
        entity_name: str | None

Request = AlterClientQuotasRequest
Reply = type[Replies]
Response = Replies.AlterClientQuotasResponse
