"""Commands for `tiered cluster up`: several brokers on this host."""
