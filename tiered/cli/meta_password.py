"""SQL's password by reference, for programs that are started with `--meta` where others see their arguments.

Owns what `--meta-password` may name, and how its text gets into the URL. Must never take the password itself, nor show
what it found.
"""

import argparse
import json
from typing import Any

from tiered.cli.failure import CommandFailed, UsageError
from tiered.config.secret import ENVIRONMENT, FILE, Secret
from tiered.errors import InvalidConfig

OPTION = "--meta-password"
SECRETS_MANAGER = "aws-secret:"
TRIES = 5
TIMEOUT_S = 10
_REFUSED = ("ResourceNotFoundException", "AccessDeniedException", "InvalidRequestException", "DecryptionFailure")


def password_argument(parser: Any) -> None:
    """Adds the option to a parser or a group of one that has `--meta`."""
    parser.add_argument(
        OPTION, metavar="REF", dest="meta_password",
        help="where the metadata store's password is: file:PATH, env:NAME, or aws-secret:ARN, whose text is the "
        "password or JSON with one as `password`, as RDS keeps it",
    )  # fmt: skip


def meta_url(arguments: argparse.Namespace) -> str:
    """`--meta` with the password that `--meta-password` names, where it names one. Never show it.

    Raises `UsageError` for what cannot be meant, `InvalidConfig` for a password that cannot be had, and
    `CommandFailed` while Secrets Manager does not answer.
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    text, reference = str(arguments.meta), arguments.meta_password
    if reference is None:
        return text
    if not str(reference).startswith((FILE, ENVIRONMENT, SECRETS_MANAGER)):
        raise UsageError(f"{OPTION} takes file:PATH, env:NAME or aws-secret:ARN, and never the password itself")
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # `from None`: the parser's own message can hold a piece of a password.
        raise UsageError("--meta cannot be parsed: use postgresql://USER@HOST/DATABASE") from None
    if not url.drivername.startswith("postgres"):
        raise UsageError(f"{OPTION} is for postgresql://, and --meta is {url.drivername}://, which knows no passwords")
    if url.password is not None or "password" in url.query:
        raise UsageError(f"--meta has a password, and {OPTION} names another: give one of them")
    return url.set(password=_found(str(reference))).render_as_string(hide_password=False)


def _found(reference: str) -> str:
    if reference.startswith(SECRETS_MANAGER):
        found = _password_in(_from_secrets_manager(reference.removeprefix(SECRETS_MANAGER)))
    else:
        found = Secret(reference, name=OPTION).reveal()
    if not found:
        raise InvalidConfig(f"{OPTION} {reference}: there is nothing in it")
    return found


def _password_in(text: str) -> str:
    """A password alone is one, too: even one that looks like a number in JSON."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    if not isinstance(found, dict):
        return text
    password = found.get("password")
    if not isinstance(password, str):
        raise InvalidConfig(f"the secret that {OPTION} names is JSON without `password`")
    return password


def _from_secrets_manager(name: str) -> str:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as error:
        raise InvalidConfig(f"{error}: {OPTION} aws-secret: needs `pip install boto3`") from error
    # An ARN says its region: a job may have no other.
    parts = name.split(":")
    region = parts[3] if name.startswith("arn:") and len(parts) >= 7 else None
    settings = Config(
        connect_timeout=TIMEOUT_S, read_timeout=TIMEOUT_S, retries={"mode": "standard", "total_max_attempts": TRIES}
    )
    try:
        answer = boto3.session.Session(region_name=region).client("secretsmanager", config=settings).get_secret_value(
            SecretId=name
        )  # fmt: skip
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        kind = InvalidConfig if code in _REFUSED else CommandFailed
        raise kind(f"Secrets Manager does not give {name}: {code}") from None
    except BotoCoreError as error:
        raise CommandFailed(f"Secrets Manager cannot be asked for {name}: {error}") from None
    if "SecretString" not in answer:
        raise InvalidConfig(f"the secret {name} is binary, and a password is text")
    text: str = answer["SecretString"]
    return text
