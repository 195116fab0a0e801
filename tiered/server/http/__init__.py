"""The HTTP door: health, metrics, our own API, Confluent's REST v3 and the console."""
