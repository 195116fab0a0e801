"""Every decision, pure: values and the time go in, a value that says what to do comes out.

Owns no state and does nothing. Must never import asyncio, socket, os, time or random; the owner of the
state acts on the answer. Rules are tested by the thousand and simulated for that reason.
"""
