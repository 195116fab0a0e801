"""Other brokers: who answers a request, and asking them over HTTP."""
