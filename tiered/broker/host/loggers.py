"""The loggers of this process under Kafka's names for levels: looked at and changed at run time, and not kept.

Owns which loggers may be touched: our own. Loggers of libraries would write requests with their credentials, so `root`
is the one above all of ours.
"""

import logging
from collections.abc import Sequence

from tiered.config import ConfigChange, ConfigEntry, ConfigOperation, ConfigSource, ConfigType
from tiered.errors import InvalidConfig, InvalidRequest

ROOT = "root"
_OURS = "tiered"
_LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def describe_loggers() -> list[ConfigEntry]:
    """Every logger with the level that counts for it, its own or that of the nearest one above it."""
    return [
        ConfigEntry(
            name=name,
            value=_word(_logger(name).getEffectiveLevel()),
            source=ConfigSource.DYNAMIC_BROKER_LOGGER,
            is_default=False,
            is_sensitive=False,
            read_only=False,
            has_effect=True,
            type=ConfigType.STRING,
            documentation="What is less severe is not logged.",
            allowed=tuple(_LEVELS),
            synonyms=(),
        )
        for name in _names()
    ]


def alter_loggers(steps: Sequence[ConfigChange], *, validate_only: bool) -> None:
    """Sets levels, or takes them back to those above; all or nothing. Raises InvalidRequest, InvalidConfig."""
    known = set(_names())
    levels: dict[str, int] = {}
    for step in steps:
        if step.name not in known:
            raise InvalidConfig(f"logger {step.name[:200]!r} does not exist; describe the loggers to see their names")
        match step.operation:
            case ConfigOperation.SET:
                if step.value not in _LEVELS:
                    raise InvalidConfig(f"{step.name}: the level must be one of {', '.join(_LEVELS)}")
                levels[step.name] = _LEVELS[step.value]
            case ConfigOperation.DELETE:
                if step.name == ROOT:
                    raise InvalidRequest("the level of root can be set, not deleted")
                levels[step.name] = logging.NOTSET
            case _:
                raise InvalidRequest(f"{step.operation.name} is not allowed for loggers: set a level, or delete it")
    if not validate_only:
        for name, level in levels.items():
            _logger(name).setLevel(level)


def _names() -> list[str]:
    found = logging.root.manager.loggerDict.items()
    ours = (name for name, each in list(found) if isinstance(each, logging.Logger))
    return [ROOT, *sorted(name for name in ours if name.startswith(f"{_OURS}."))]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(_OURS if name == ROOT else name)


def _word(level: int) -> str:
    return next((word for word, its in _LEVELS.items() if level <= its), "FATAL")
