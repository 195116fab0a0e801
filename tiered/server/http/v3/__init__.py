"""Confluent's REST API, version 3."""
