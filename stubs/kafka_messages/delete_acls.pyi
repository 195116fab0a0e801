from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class DeleteAclsRequest:
    filters: Sequence[DeleteAclsFilter]

@final
@dataclass(kw_only=True)
class DeleteAclsFilter:
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int = ...
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int

class Replies:
    @final
    @dataclass(kw_only=True)
    class DeleteAclsResponse:
        throttle_time: int = ...
        filter_results: Sequence[Replies.DeleteAclsFilterResult]

    @final
    @dataclass(kw_only=True)
    class DeleteAclsFilterResult:
        error_code: int
        error_message: str | None
        matching_acls: Sequence[Replies.DeleteAclsMatchingAcl]

    @final
    @dataclass(kw_only=True)
    class DeleteAclsMatchingAcl:
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        pattern_type: int = ...
        principal: str
        host: str
        operation: int
        permission_type: int

Request = DeleteAclsRequest
Reply = type[Replies]
Response = Replies.DeleteAclsResponse
