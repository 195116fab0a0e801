"""How commands reach a broker, over Kafka's protocol and HTTP, and its errors in words."""
