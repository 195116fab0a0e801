"""The hot tail: one log per partition in files of Kafka's own format, written, recovered, flushed and read.

Owns the files below `<data>/log`. Sync: appends and reads run on the event loop against the page cache,
everything that may wait for the disk runs in threads. Must never know of objects, SQL or connections.
"""
