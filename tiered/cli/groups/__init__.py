"""Commands for consumer groups: their configs and committed offsets."""
