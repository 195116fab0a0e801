"""The cold tier: segments and checkpoints as objects in a bucket, and the chunks of them read back.

Owns every conversation with an object store. Must never touch SQL, sockets of clients or the hot log.
"""
