from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class DescribeConfigsRequest:
    resources: Sequence[DescribeConfigsResource]
    include_synonyms: bool = ...
    include_documentation: bool = ...

@final
@dataclass(kw_only=True)
class DescribeConfigsResource:
    resource_type: int
    resource_name: str
    configuration_keys: Sequence[str] | None = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class DescribeConfigsResponse:
        throttle_time: int = ...
        results: Sequence[Replies.DescribeConfigsResult]

    @final
    @dataclass(kw_only=True)
    class DescribeConfigsResult:
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        configs: Sequence[Replies.DescribeConfigsResourceResult]

    @final
    @dataclass(kw_only=True)
    class DescribeConfigsResourceResult:
        name: str
        value: str | None
        read_only: bool
        config_source: int = ...
        is_sensitive: bool
        synonyms: Sequence[Replies.DescribeConfigsSynonym]
        config_type: int = ...
        documentation: str | None = ...

    @final
    @dataclass(kw_only=True)
    class DescribeConfigsSynonym:
        name: str
        value: str | None
        source: int

Request = DescribeConfigsRequest
Reply = type[Replies]
Response = Replies.DescribeConfigsResponse
