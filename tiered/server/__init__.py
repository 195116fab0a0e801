"""The doors: the Kafka protocol and HTTP. Imports the broker, never a store."""
