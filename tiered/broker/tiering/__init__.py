"""Segments on their way to the object store, and out of both tiers."""
