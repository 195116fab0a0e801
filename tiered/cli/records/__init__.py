"""Commands for records: `produce` and `consume`."""
