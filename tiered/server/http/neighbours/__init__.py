"""Other brokers: the choice of the one that answers, and requests to them over HTTP."""
