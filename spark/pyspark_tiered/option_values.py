"""Numbers, switches, durations, URLs and JSON, as options hold them. Every error names its option and the way out."""

import json
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from tiered.errors import InvalidConfig
from tiered.ids import is_legal_topic_name

_DURATION = re.compile(
    r"(\d+) *(ms|milliseconds?|s|sec|secs|seconds?|m|min|mins|minutes?|h|hours?|d|days?)?", re.ASCII | re.IGNORECASE
)
_UNITS = {"": 1, "m": 60_000, "s": 1000, "h": 3_600_000, "d": 86_400_000}


def positive(options: Mapping[str, str], name: str, *, least: int = 1) -> int | None:
    """The number of option `name` (names in `options` are in lower case); None where it is not given."""
    text = options.get(name.lower())
    if text is None:
        return None
    stripped = text.strip()
    if not stripped.isascii() or not stripped.isdigit() or not least <= int(stripped) < 2**63:
        raise InvalidConfig(f"option {name} is {text!r}; give a {'positive number' if least else 'number from 0 on'}")
    return int(stripped)


def boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Whether option `name` is true."""
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise InvalidConfig(f"option {name} is {text!r}; use true or false")
    return text == "true"


def duration_ms(options: Mapping[str, str], name: str, *, default_ms: int) -> int:
    """A time as Spark writes it: 500ms, 30s, 15m, 2h, 1d; a number alone is milliseconds."""
    text = options.get(name.lower())
    if text is None:
        return default_ms
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise InvalidConfig(f"option {name} is {text!r}; give a time such as 500ms, 30s, 15m or 2h")
    unit = (found[2] or "").lower()
    return int(found[1]) * (1 if unit.startswith(("ms", "milli")) else _UNITS[unit[:1]])


def http_urls(options: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The URLs of a list like http://a:8080,http://b:8080, without a slash at the end. None may hold a password."""
    found = []
    for each in filter(None, (part.strip() for part in options.get(name.lower(), "").split(","))):
        shape = f"option {name} is a broker's HTTP address like http://broker-1:8080, or several with commas"
        try:
            url = urlsplit(each)
            named, _ = url.hostname, url.port
        except ValueError:
            raise InvalidConfig(shape) from None
        if "@" in url.netloc:
            raise InvalidConfig(f"{shape}; it must not hold a user or a password, for plans and logs show options")
        if url.scheme not in ("http", "https") or not named or url.query or url.fragment or url.path not in ("", "/"):
            raise InvalidConfig(shape)
        found.append(f"{url.scheme}://{url.netloc}")
    return tuple(found)


def json_object(text: str, shape: str) -> dict[str, object]:
    """The JSON object; `shape` says in an error how it should look."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InvalidConfig(f"{shape}: {error}") from error
    if not isinstance(document, dict):
        raise InvalidConfig(shape)
    return document


def check_topic(option: str, topic: str) -> None:
    """Nothing for a legal name."""
    if not is_legal_topic_name(topic):
        raise InvalidConfig(f"option {option} names {topic!r}, which is no topic name: use 1 to 249 of [a-zA-Z0-9._-]")
