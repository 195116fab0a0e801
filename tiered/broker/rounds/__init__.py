"""Periodic work of a broker."""
