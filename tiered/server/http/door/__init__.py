"""What every request passes before a route: the socket, TLS, limits, logins and rights."""
