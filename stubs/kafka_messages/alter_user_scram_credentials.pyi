from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class AlterUserScramCredentialsRequest:
    deletions: Sequence[ScramCredentialDeletion]
    upsertions: Sequence[ScramCredentialUpsertion]

@final
@dataclass(kw_only=True)
class ScramCredentialDeletion:
    name: str
    mechanism: int

@final
@dataclass(kw_only=True)
class ScramCredentialUpsertion:
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

class Replies:
    @final
    @dataclass(kw_only=True)
    class AlterUserScramCredentialsResponse:
        throttle_time: int = ...
        results: Sequence[Replies.AlterUserScramCredentialsResult]

    @final
    @dataclass(kw_only=True)
    class AlterUserScramCredentialsResult:
        user: str
        error_code: int
        error_message: str | None

Request = AlterUserScramCredentialsRequest
Reply = type[Replies]
Response = Replies.AlterUserScramCredentialsResponse
