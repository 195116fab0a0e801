from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class DescribeClientQuotasRequest:
    components: Sequence[ComponentData]
    strict: bool

@final
@dataclass(kw_only=True)
class ComponentData:
    entity_type: str
    match_type: int
    match: str | None

class Replies:
    @final
    @dataclass(kw_only=True)
    class DescribeClientQuotasResponse:
        throttle_time: int = ...
        error_code: int
        error_message: str | None
        entries: Sequence[Replies.EntryData] | None

    @final
    @dataclass(kw_only=True)
    class EntryData:
        entity: Sequence[Replies.EntityData]
        values: Sequence[Replies.ValueData]

    @final
    @dataclass(kw_only=True)
    class EntityData:
        entity_type: str
        entity_name: str | None

    @final
    @dataclass(kw_only=True)
    class ValueData:
        key: str
        value: float

Request = DescribeClientQuotasRequest
Reply = type[Replies]
Response = Replies.DescribeClientQuotasResponse
