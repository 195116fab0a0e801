"""The pure room of bytes in flight: frames, requests and responses of the Kafka protocol. Records stay opaque."""
