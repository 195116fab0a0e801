"""Commands for access control lists."""
