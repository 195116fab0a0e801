"""One file for each Kafka API. Each opens with its versions, its behaviour and its deliberate gaps."""
