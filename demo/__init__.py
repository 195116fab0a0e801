"""The whole story with real input, as `make demo` tells it: flights into the log, through S3, into Spark.

Owns nothing that a broker or Spark needs: it uses what any user has, over the wire.
"""
