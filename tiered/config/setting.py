"""A setting: its name, type, bounds and documentation, and how its text becomes a value.

Owns parsing and the words of its errors. Never knows which settings exist: `topic` and `broker` do.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from types import EllipsisType
from typing import Any

from tiered.errors import InvalidConfig

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

# The type of a parsed setting. A list is a tuple, so that values can be compared and hashed.
ConfigValue = int | float | bool | str | tuple[str, ...] | None
_METADATA_KEY = "setting"
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}\Z")
_TOO_LONG_TO_SHOW = 200
MAX_TEXT_BYTES = 32_767
"""Of a value: no answer of Kafka's protocol carries more."""
HIDDEN = "[hidden]"
"""In the place of a secret, or of what may be one."""


class ConfigType(IntEnum):
    """The type codes of DescribeConfigs (KIP-226)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where an effective value comes from, as DescribeConfigs tells it (KIP-226)."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """A broker setting that gives a topic config its default: `log.retention.hours` counts 3,600,000 ms."""

    name: str
    multiplier: int = 1
    default: int | EllipsisType | None = ...
    """None where the next synonym counts instead; without a word, that of the config."""
    note: str = ""
    """What its documentation adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. `minimum` and `maximum` are inclusive; `allowed` are the only legal words, if there are any."""

    name: str
    type: ConfigType
    default: ConfigValue
    documentation: str
    minimum: float | None = None
    maximum: float | None = None
    allowed: tuple[str, ...] = ()
    synonyms: tuple[Synonym, ...] = ()
    read_only: bool = False
    has_effect: bool = True
    """False for what is accepted, kept and shown, because Kafka has it, and does nothing here."""
    is_kafkas: bool = True
    """False for a topic's config that Kafka 4.2 has not: its clients are told that it is read-only."""
    of_one_broker: bool = False
    """It cannot be set for all brokers at run time."""
    gives_rights: bool = False
    """It says who is let in, or for how long: a bucket is not believed when it names one."""

    def may_change_at_run_time(self, *, for_all: bool) -> bool:
        """Whether brokers take it while they run: for one broker or, with `for_all`, for the cluster."""
        return not self.read_only and not (for_all and self.of_one_broker)

    @property
    def is_sensitive(self) -> bool:
        """Its value is shown to nobody."""
        return self.type in (ConfigType.PASSWORD, ConfigType.UNKNOWN)

    def parse(self, text: str) -> ConfigValue:
        """The value that `text` stands for; raises InvalidConfig with the name, the text and what is allowed."""
        stripped = text.strip()
        if "\0" in text:  # No database but SQLite keeps it.
            raise self._refusal(text)
        match self.type:
            case ConfigType.BOOLEAN:
                if stripped.lower() not in ("true", "false"):
                    raise self._refusal(text)
                return stripped.lower() == "true"
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                if _INTEGER.match(stripped) is None:
                    raise self._refusal(text)
                return self._bounded(int(stripped), text)
            case ConfigType.DOUBLE:
                try:
                    number = float(stripped)
                except ValueError:
                    raise self._refusal(text) from None
                return self._bounded(number, text)
            case ConfigType.LIST:
                words = tuple(word.strip() for word in stripped.split(",")) if stripped else ()
                if self.allowed and any(word not in self.allowed for word in words):
                    raise self._refusal(text)
                return words
            case _:
                if self.allowed and stripped not in self.allowed:
                    raise self._refusal(text)
                return stripped

    def text_of(self, value: ConfigValue) -> str | None:
        """The text that parses to `value`; None for a value that is not set."""
        match value:
            case None:
                return None
            case bool():
                return "true" if value else "false"
            case tuple():
                return ",".join(value)
            case float():
                return as_java_writes(value)
            case _:
                return str(value)

    def what_is_allowed(self) -> str:
        """The legal values in words: `one of delete, compact` or `a whole number from 1 to 2147483647`."""
        if self.allowed:
            words = ", ".join(self.allowed)
            return f"a list of {words}, or empty" if self.type is ConfigType.LIST else f"one of {words}"
        match self.type:
            case ConfigType.BOOLEAN:
                return "true or false"
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                low, high = self._bounds()
                return f"a whole number from {low} to {high}"
            case ConfigType.DOUBLE:
                low, high = self._bounds()
                return f"a number from {low:g} to {high:g}"
            case _:
                return "text"

    def _bounds(self) -> tuple[float, float]:
        # Whole numbers stay ints: as floats the largest long would be off by one.
        largest = {ConfigType.SHORT: 2**15 - 1, ConfigType.INT: INT_MAX}.get(self.type, LONG_MAX)
        low = -largest - 1 if self.minimum is None else self.minimum
        return low, largest if self.maximum is None else self.maximum

    def _bounded(self, number: float, text: str) -> int | float:
        low, high = self._bounds()
        if not low <= number <= high:  # Written so that NaN fails it.
            raise self._refusal(text)
        return number

    def _refusal(self, text: str) -> InvalidConfig:
        shown = text if len(text) <= _TOO_LONG_TO_SHOW else text[:_TOO_LONG_TO_SHOW] + "…"
        if self.is_sensitive:
            shown = HIDDEN
        return InvalidConfig(f"{self.name}={shown} is not allowed: it must be {self.what_is_allowed()}")


def as_java_writes(number: float) -> str:
    """A finite double as Double.toString has it: `1.0E-4` below 0.001 and `1.0E7` from ten million on, else plain.

    The digits are the fewest that make this double. Java 17 has the same below 1.0E16, and for 1 to 4 % of what is
    larger other ones (1.9999999999999998E23), which are the same double; Java 19 mended that.
    """
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    mantissa, _, exponent = f"{Decimal(repr(number)).normalize():E}".partition("E")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}E{int(exponent)}"


def setting(
    type_: ConfigType,
    default: ConfigValue,
    documentation: str,
    *,
    synonyms: Sequence[str | Synonym] = (),
    **others: Any,
) -> Any:
    """A dataclass field that is also an entry of the registry; its name is the field's, with dots for underscores.

    `synonyms` are the broker settings that give a config of topics or groups its default, the first that is set. One of
    the config's own name makes a broker setting of that name. `others` are fields of `Setting`.
    """
    named = tuple(Synonym(name=each) if isinstance(each, str) else each for each in synonyms)
    entry = Setting(name="", type=type_, default=default, documentation=documentation, synonyms=named, **others)
    return dataclasses.field(default=default, metadata={_METADATA_KEY: entry})


def registry_of(config_class: type) -> dict[str, Setting]:
    """The settings that the fields of a dataclass declare, by name, in alphabetical order."""
    named = [
        dataclasses.replace(field.metadata[_METADATA_KEY], name=field.name.replace("_", "."))
        for field in dataclasses.fields(config_class)
        if _METADATA_KEY in field.metadata
    ]
    return {entry.name: entry for entry in sorted(named, key=lambda entry: entry.name)}


def field_name(setting_name: str) -> str:
    """The attribute that holds a setting: `retention_ms` for `retention.ms`."""
    return setting_name.replace(".", "_")


def known(registry: Mapping[str, Setting], name: str, *, kind: str) -> Setting:
    """The setting of this name; raises InvalidConfig that names it and suggests the nearest one."""
    found = registry.get(name)
    if found is not None:
        return found
    import difflib

    near = difflib.get_close_matches(name, registry, n=1)
    suggestion = f"; did you mean {near[0]}?" if near else ""
    raise InvalidConfig(f"unknown {kind} {name[:_TOO_LONG_TO_SHOW]!r}{suggestion}")


def parse_all(registry: Mapping[str, Setting], texts: Mapping[str, str], *, kind: str) -> dict[str, ConfigValue]:
    """Every text parsed, by name; raises InvalidConfig at the first one that is unknown or not allowed."""
    return {name: known(registry, name, kind=kind).parse(text) for name, text in texts.items()}


def require_sendable(name: str, text: str) -> None:
    """Returns when clients can be told the value. Raises InvalidConfig. Not asked of what is stored already."""
    size_bytes = len(text.encode("utf-8", "surrogatepass"))
    if size_bytes > MAX_TEXT_BYTES:
        raise InvalidConfig(f"{name} has a value of {size_bytes} bytes; {MAX_TEXT_BYTES} are possible")


class ConfigOperation(IntEnum):
    """The operations of IncrementalAlterConfigs on one setting (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One step of IncrementalAlterConfigs. `value` is None only for DELETE."""

    name: str
    operation: ConfigOperation
    value: str | None = None


def changed(
    registry: Mapping[str, Setting], current: Mapping[str, str], changes: Iterable[ConfigChange], *, kind: str
) -> dict[str, str]:
    """The explicit texts after `changes`, in their order; `current` is left as it is.

    Raises InvalidConfig for an unknown setting, a value that is not allowed, a SET without a value, and APPEND or
    SUBTRACT on what is no list. Source: KIP-339.
    """
    result = dict(current)
    for change in changes:
        entry = known(registry, change.name, kind=kind)
        if change.operation is ConfigOperation.DELETE:
            result.pop(change.name, None)
            continue
        if change.value is None:
            raise InvalidConfig(f"{change.name} needs a value; to go back to its default, delete it")
        if change.operation is ConfigOperation.SET:
            entry.parse(change.value)
            require_sendable(change.name, change.value)
            result[change.name] = change.value.strip()
            continue
        if entry.type is not ConfigType.LIST:
            raise InvalidConfig(
                f"{change.name} is no list: it can be set or deleted, not appended to or subtracted from"
            )
        given = [word.strip() for word in change.value.split(",") if word.strip()]
        now = entry.parse(result[change.name]) if change.name in result else entry.default
        words = list(now) if isinstance(now, tuple) else []
        if change.operation is ConfigOperation.APPEND:
            words.extend(word for word in given if word not in words)
        else:
            words = [word for word in words if word not in given]
        text = ",".join(words)
        entry.parse(text)
        require_sendable(change.name, text)
        result[change.name] = text
    return result
