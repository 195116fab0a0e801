"""Commands for transactions: what is open, since when, and ending what hangs."""
