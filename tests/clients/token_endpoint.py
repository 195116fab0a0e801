"""An address that gives tokens for a client's id and secret, as an identity provider does (RFC 6749, 4.4)."""

import json
import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs

from tests.certificates import Shown

CLIENT_ID, CLIENT_SECRET = "bob", "secret of bob"
LOGIN = f"Basic {b64encode(f'{CLIENT_ID}:{CLIENT_SECRET}'.encode()).decode()}"


@contextmanager
def token_endpoint(certificate: Shown, token: Callable[[], str]) -> Iterator[str]:
    """Its https address on loopback, as long as the context."""

    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            known = self.headers["Authorization"] == LOGIN and asked["grant_type"] == ["client_credentials"]
            answer = {"access_token": token(), "token_type": "Bearer", "expires_in": 300} if known else {}
            body = json.dumps(answer or {"error": "invalid_client"}).encode()
            self.send_response(200 if known else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Says nothing: what clients ask is no news."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.both)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_address[1]}/token"
        finally:
            server.shutdown()
            thread.join()
