"""Commands for brokers: their settings, and what drains, balances and removes them."""
