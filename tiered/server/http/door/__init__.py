"""The stages before a route: the socket, TLS, limits, logins and rights."""
