"""Commands for topics, and emptying them."""
