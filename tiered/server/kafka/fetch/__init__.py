"""Answers to Fetch: for consumers, and for followers."""
