"""The broker settings that may be changed while brokers run, and warnings when one starts.

Owns these rules and their words, Kafka's where it has some. Never stores anything.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from tiered.config.broker import BROKER_SETTINGS, KIND, BrokerSettings, broker_setting
from tiered.config.listeners import PREFIX
from tiered.config.setting import INT_MAX, ConfigChange, ConfigOperation, ConfigType, Setting, changed
from tiered.errors import InvalidConfig, InvalidRequest

MAX_SETTINGS = 1000
"""That are set at run time, for one broker or for all."""
MAX_UNKNOWN_CHARACTERS = 10_000
_BROKER_ID = re.compile(r"(0|[1-9][0-9]{0,9})\Z")
_NAME = re.compile(r"[!-~]{1,249}\Z")


def changed_at_run_time(
    current: Mapping[str, str], changes: Sequence[ConfigChange], *, for_all: bool
) -> dict[str, str]:
    """The explicit texts after `changes`, of one broker or, with `for_all`, of the cluster.

    As in Kafka, an unknown name is kept. Raises InvalidRequest for a setting that is read at start alone, or that
    belongs to one broker, and InvalidConfig as `changed` does.
    """
    registry = {each.name: broker_setting(each.name) for each in changes}
    given = [registry[each.name] for each in changes if each.operation is not ConfigOperation.DELETE]
    _refuse("Cannot update these configs dynamically", (each.name for each in given if each.read_only))
    if for_all:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            (each.name for each in given if each.of_one_broker),
        )
    result = changed(registry, current, changes, kind=KIND)
    for entry in given:
        if entry.type is ConfigType.UNKNOWN and (
            _NAME.match(entry.name) is None or len(result[entry.name]) > MAX_UNKNOWN_CHARACTERS
        ):
            raise InvalidConfig(
                f"{entry.name[:80]!r} is no setting that is known, and others have names of 1 to 249 letters without "
                f"blanks, and {MAX_UNKNOWN_CHARACTERS} characters at the most"
            )
    if len(result) > MAX_SETTINGS:
        raise InvalidConfig(f"{len(result)} settings would be set at run time; {MAX_SETTINGS} can be")
    return result


def taken_at_run_time(scope: str, name: str, text: str) -> Setting | None:
    """The setting, where brokers would take this text for it at run time, else None. `scope` is a broker's id, or empty
    for all of them."""
    if scope and not (_BROKER_ID.match(scope) and int(scope) <= INT_MAX):
        return None
    change = ConfigChange(name=name, operation=ConfigOperation.SET, value=text)
    try:
        # The second look is for what the settings of a group say of each other.
        BrokerSettings.of(dynamic=changed_at_run_time({}, [change], for_all=not scope))
    except (InvalidConfig, InvalidRequest):
        return None
    return broker_setting(name)


def _refuse(why: str, names: Iterable[str]) -> None:
    if found := ", ".join(names):
        raise InvalidRequest(f"{why}: {found}")


def start_warnings(static: Mapping[str, str], listeners: Iterable[str]) -> list[str]:
    """Warnings about these: unknown names, and listeners that do not exist."""
    prefixes = tuple(f"{PREFIX}{name.lower()}." for name in listeners)
    return [warning for name in sorted(static) if (warning := _warning(name, prefixes))]


def _warning(name: str, prefixes: tuple[str, ...]) -> str | None:
    if name.startswith(PREFIX) and not name.startswith(prefixes):
        there = ", ".join(each.removeprefix(PREFIX).rstrip(".").upper() for each in prefixes)
        return f"{name} is of no listener and has no effect: there is {there}"
    if broker_setting(name).type is not ConfigType.UNKNOWN:
        return None
    prefix = next((each for each in prefixes if name.startswith(each)), "")
    near = difflib.get_close_matches(name.removeprefix(prefix)[:100], BROKER_SETTINGS, n=1)
    suggestion = f"; did you mean {prefix}{near[0]}?" if near else ""
    return f"unknown {KIND} {name[:200]!r} has no effect{suggestion}"


def without_effect(static: Mapping[str, str]) -> list[str]:
    """Settings of Kafka that do nothing here."""
    return [
        name
        for name in sorted(static)
        if not (found := broker_setting(name)).has_effect and found.type is not ConfigType.UNKNOWN
    ]
