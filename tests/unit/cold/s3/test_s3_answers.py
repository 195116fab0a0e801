"""A store that answers what no S3 answers is one that is away: tried again, then told, and never a bug of ours."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tiered.cold.object_store import Checksum, S3Address
from tiered.cold.s3.store import S3Store
from tiered.errors import StoreUnavailable

WrongStore = tuple[S3Store, list[bytes]]


def _answer(listener: socket.socket, status: bytes, header: bytes, asked: list[bytes]) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 " + status + b'\r\nETag: "x"\r\nConnection: close\r\n' + header)


OK = b"200 OK"
WRONG = "no answer of S3|IncompleteReadError|a length of -1"
PAGE = (
    b"<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>a</NextKeyMarker>"
    b"<NextUploadIdMarker>a</NextUploadIdMarker></ListMultipartUploadsResult>"
)


@pytest.fixture(
    params=[(OK, b"\r\nabc"), (OK, b"Content-Length: many\r\n\r\nabc"), (OK, b"Content-Length: -1\r\n\r\nabc")],
    ids=["no length", "no number", "negative"],
)
def wrong_store(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[S3Store, list[bytes]]]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_answer, args=(listener, *request.param, asked), daemon=True)
        thread.start()
        address = S3Address(
            bucket="bucket",
            prefix="",
            region="us-east-1",
            endpoint_url=f"http://127.0.0.1:{listener.getsockname()[1]}",
            path_style=True,
            checksum=Checksum.AUTO,
        )
        store = S3Store(address, max_attempts=2, probe_first=False, read_timeout_ms=2000, first_backoff_ms=1)
        yield store, asked
        store.close()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_an_answer_without_a_usable_length_is_asked_for_again(wrong_store: WrongStore) -> None:
    store, asked = wrong_store
    with pytest.raises(StoreUnavailable, match=WRONG):
        store.get("key", max_bytes=100)
    assert len(asked) == 2
    with pytest.raises(StoreUnavailable, match=WRONG):
        store.head("key")


@pytest.mark.parametrize("wrong_store", [(OK, b"\r\n" + PAGE)], indirect=True)
def test_a_list_of_uploads_that_never_ends_is_left(wrong_store: WrongStore) -> None:
    store, asked = wrong_store
    assert store.abort_abandoned_uploads("x", started_before_ms=5) == ()
    assert len(asked) == 100


@pytest.mark.parametrize("wrong_store", [(b"307 Elsewhere", b"Location: http://127.0.0.1:9/\r\n\r\n")], indirect=True)
def test_redirections_are_a_store_that_is_away(wrong_store: WrongStore) -> None:
    # Where Python ends the recursion is in botocore's code or in urllib3's, whose errors botocore wraps.
    with pytest.raises(StoreUnavailable, match=r"last: (no answer of S3: RecursionError|HTTPClientError)\)"):
        wrong_store[0].get_range("key", 0, 3)
