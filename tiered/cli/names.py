"""Names that somebody may have meant.

Owns the guess alone.
"""

import difflib
from collections.abc import Iterable

_MOST = 3
_LEAST_ALIKE = 0.6


def nearest_names(name: str, there: Iterable[str], *, prefix: str = "") -> str:
    """` (did you mean a, b?)` for names that are much like this one, else an empty text. Case counts little.

    All names begin with `prefix`, which makes none of them more alike.
    """
    there = [candidate.removeprefix(prefix) for candidate in there]
    by_folded = {each.casefold(): each for each in sorted(there, reverse=True)}
    meant = name.removeprefix(prefix).casefold()
    near = difflib.get_close_matches(meant, list(by_folded), n=_MOST, cutoff=_LEAST_ALIKE)
    return f" (did you mean {', '.join(prefix + by_folded[name] for name in near)}?)" if near else ""
