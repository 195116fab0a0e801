"""Commands for users who log in by a password."""
