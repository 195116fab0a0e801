"""The mechanisms of SASL that are spoken here, as functions of what was said so far.

Owns their messages and checks, on both sides. Must never make a nonce, read a clock or look up a user: those are
arguments. Nothing secret may be in an error or a repr.
"""
