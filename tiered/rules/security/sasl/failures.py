"""Failures of authentication.

Owns the kinds of error, sorted as in `tiered.errors`. None of them may tell whether there is such a user.
"""

from tiered.errors import Invalid


class AuthenticationFailed(Invalid):
    """The client did not prove its identity. Never tells whether there is such a user. Ends the connection."""


class IllegalSaslState(Invalid):
    """A message of authentication where none is expected, or another one."""


class UnsupportedSaslMechanism(Invalid):
    """The mechanism is not enabled on this listener."""


class UnacceptableCredential(Invalid):
    """The credential of a password is not of the form, or within the bounds, that it must be."""


class UserNotFound(Invalid):
    """The user has no credential of this mechanism."""


class UserExists(Invalid):
    """A user of this name is there already, with a password of its own."""


class DuplicateUser(Invalid):
    """The same user, or credential, stands twice in one request."""
