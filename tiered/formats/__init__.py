"""Everything that is persisted: record batches, indexes, segment objects, keys and checkpoints.

Pure: takes bytes and values, gives bytes and values. Shared by the broker and by Spark. Must never open a
file, read a clock or trust a count, length or size that it has not held against the bytes that are there.
"""
