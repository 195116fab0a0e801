"""The cold tier: segments and checkpoints as objects in a bucket, and the chunks of them read back.

Owns every conversation with an object store. Must never touch SQL, sockets of clients or the hot log. Here are the
stores and what stands around one; `s3/` is the store over the S3 API, `bucket/` what Tiered keeps in a store and the
one way to read it, `chunks/` the reads for a broker's clients, `verify/` the search for damage.
"""
