"""Disk, metadata store and object store compared in the background, and the store read to see whether it is whole."""
