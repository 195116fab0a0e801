"""Whether this broker is the controller, as its last heartbeat saw it.

Owns the one value. Must never decide anything: `controller` sets it, those that work only on the controller read it.
"""


class ControllerLease:
    """The lease of one broker. The controller alone changes it."""

    __slots__ = ("is_held",)

    def __init__(self) -> None:
        self.is_held = False
