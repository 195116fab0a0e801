"""Durations and sizes as people write them: `7d` for `retention.ms`, `1GiB` for `segment.bytes`.

Owns the units. Only what people type is read here; what is stored and sent is always the number.
"""

import re

from tiered.errors import InvalidConfig

_UNITS = {
    "ms": {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000},
    "bytes": {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40},
}
_WITH_A_UNIT = re.compile(r"([0-9]{1,18})([A-Za-z]+)")


def in_plain_units(name: str, text: str) -> str:
    """The value of the config as the number that it is stored as; a text without a unit as it is.

    Raises InvalidConfig for a unit that the config's name does not ask for.
    """
    units = _UNITS.get(name.rpartition(".")[2])
    found = _WITH_A_UNIT.fullmatch(text)
    if units is None or found is None:
        return text
    if found[2] not in units:
        raise InvalidConfig(f"{name}={text} is not allowed: write a whole number, or one with {', '.join(units)}")
    return str(int(found[1]) * units[found[2]])
