"""What only the garbage collector frees, by name, so that a test says what is left in a cycle."""

import gc
import types
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def noted_garbage() -> Iterator[Counter[str]]:
    """The collector is off meanwhile. At the end the counter has what it frees of all that was made meanwhile."""
    names = Counter[str]()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield names
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        names.update(_name(garbage) for garbage in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.unfreeze()


def _name(garbage: object) -> str:
    match garbage:
        case types.FrameType():
            return f"frame of {garbage.f_code.co_qualname}"
        case types.FunctionType() | types.MethodType() | types.CoroutineType():
            return f"{type(garbage).__name__} {garbage.__qualname__}"
        case _:
            return f"{type(garbage).__module__}.{type(garbage).__qualname__}"


def alive(kind: type) -> int:
    """How many of that class there are that were made within `noted_garbage`."""
    return sum(isinstance(each, kind) for each in gc.get_objects())
