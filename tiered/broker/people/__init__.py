"""Answers to people, over HTTP and in the console: records, positions, lag, cost, reports."""
