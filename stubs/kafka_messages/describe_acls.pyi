from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class DescribeAclsRequest:
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
    class DescribeAclsResponse:
        throttle_time: int = ...
        error_code: int
        error_message: str | None
        resources: Sequence[Replies.DescribeAclsResource]

    @final
    @dataclass(kw_only=True)
    class DescribeAclsResource:
        resource_type: int
        resource_name: str
        pattern_type: int = ...
        acls: Sequence[Replies.AclDescription]

    @final
    @dataclass(kw_only=True)
    class AclDescription:
        principal: str
        host: str
        operation: int
        permission_type: int

Request = DescribeAclsRequest
Reply = type[Replies]
Response = Replies.DescribeAclsResponse
