"""How much at once, how far ahead, and whose turn it is."""
