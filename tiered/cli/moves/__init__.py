"""Commands for moves of replicas from broker to broker, and elections."""
