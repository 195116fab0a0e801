from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class DescribeUserScramCredentialsRequest:
    users: Sequence[UserName] | None

@final
@dataclass(kw_only=True)
class UserName:
    name: str

class Replies:
    @final
    @dataclass(kw_only=True)
    class DescribeUserScramCredentialsResponse:
        throttle_time: int = ...
        error_code: int
        error_message: str | None
        results: Sequence[Replies.DescribeUserScramCredentialsResult]

    @final
    @dataclass(kw_only=True)
    class DescribeUserScramCredentialsResult:
        user: str
        error_code: int
        error_message: str | None
        credential_infos: Sequence[Replies.CredentialInfo]

    @final
    @dataclass(kw_only=True)
    class CredentialInfo:
        mechanism: int
        iterations: int

Request = DescribeUserScramCredentialsRequest
Reply = type[Replies]
Response = Replies.DescribeUserScramCredentialsResponse
