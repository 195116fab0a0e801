"""Commands for an object store by itself, without a broker: `verify` and `restore`."""
