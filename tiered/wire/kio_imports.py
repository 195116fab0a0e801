"""kio's messages, imported without what kio brings along for its own tests.

Owns one work-around: where hypothesis is installed, kio imports it, to register how its types are generated. That
takes a fifth of a second of a broker's start, on the machine of everybody who develops or tests with us. Must never
touch `sys.modules` for hypothesis itself: another thread may be importing it.
"""

import builtins
import importlib.util
import sys
from types import ModuleType
from typing import Any

_PHANTOM = "kio.static._phantom"


def leave_hypothesis_out() -> None:
    """kio will not import hypothesis. Changes nothing where hypothesis, or kio's module, is imported already."""
    if "hypothesis" in sys.modules or _PHANTOM in sys.modules:
        return
    spec = importlib.util.find_spec(_PHANTOM)
    if spec is None or spec.loader is None:
        return
    module: ModuleType = importlib.util.module_from_spec(spec)
    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import_without_hypothesis}
    sys.modules[_PHANTOM] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[_PHANTOM]
        raise


def _import_without_hypothesis(name: str, *arguments: Any, **named: Any) -> Any:
    if name.partition(".")[0] == "hypothesis":
        raise ImportError("kio does without hypothesis here")
    return builtins.__import__(name, *arguments, **named)
