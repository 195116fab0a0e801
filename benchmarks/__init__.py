"""Measurements, beside a reference in the same invocation. `make bench` runs them.

Owns no claim: it writes what it measured, with the machine, the versions and every run, to bench-results/.
"""
