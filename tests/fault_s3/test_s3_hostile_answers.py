"""Who answers in the place of S3 takes neither memory nor threads for good, and has nothing deleted by a listing."""

import socket
import time
from collections.abc import Callable
from email.utils import formatdate

import pytest

from tests.fault_s3.hostile_s3 import Answer, HostileS3, hostile_s3, listing, uploads, whole
from tiered.cli.doctor.findings import Status
from tiered.cli.doctor.store import _listing, _why_not
from tiered.cold.s3.store import _MOST_REFUSED_IN_A_ROW, S3Store
from tiered.cold.timed_store import TimedStore
from tiered.errors import StoreRefused, StoreTrouble, StoreUnavailable
from tiered.runtime import SystemClock

Ask = Callable[[S3Store], object]

GET: Ask = lambda store: store.get_range("key", 0, 3)  # noqa: E731
GET_ALL: Ask = lambda store: store.get("key", max_bytes=1 << 20)  # noqa: E731
LIST: Ask = lambda store: store.list("segments/")  # noqa: E731
PUT: Ask = lambda store: store.put("key", b"abc")  # noqa: E731
HEAD: Ask = lambda store: store.head("key")  # noqa: E731
UPLOADS: Ask = lambda store: store.abort_abandoned_uploads("segments/", started_before_ms=10**13)  # noqa: E731

RANGE = "Content-Range: bytes 0-2/9\r\n"
ENDLESS = "Transfer-Encoding: chunked\r\n"
CHUNK = b"10000\r\n" + b"x" * 65536 + b"\r\n"
MUCH = 64 << 20
PAUSE_S, PAUSES = 0.05, 400
"""Twenty seconds, ten times what is allowed to an answer here, without a wait that is long."""


@pytest.mark.parametrize(
    ("ask", "head"),
    [
        (GET, f"HTTP/1.1 206 Partial\r\n{RANGE}{ENDLESS}"),
        (GET, f"HTTP/1.1 206 Partial\r\n{RANGE}Content-Length: 999999999999\r\n"),
        (GET_ALL, f'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nETag: "x"\r\n{ENDLESS}'),
        (LIST, f"HTTP/1.1 200 OK\r\n{ENDLESS}"),
        (LIST, f"HTTP/1.1 500 Oh\r\n{ENDLESS}"),
        (GET, f"HTTP/1.1 404 Not Found\r\n{ENDLESS}"),
        (PUT, f"HTTP/1.1 200 OK\r\n{ENDLESS}"),
    ],
    ids=["range", "long range", "object", "list", "error", "no object", "put"],
)
def test_an_answer_without_an_end_is_left_where_it_may_end(ask: Ask, head: str) -> None:
    servers: list[HostileS3] = []

    def pour(connection: socket.socket, request: bytes) -> None:
        connection.sendall(head.encode() + b"\r\n")
        servers[0].pour(connection, CHUNK if ENDLESS in head else b"x" * 65536, MUCH)

    with hostile_s3(pour) as (store, server):
        servers.append(server)
        with pytest.raises(StoreUnavailable):
            ask(store)
        # Twice what is read, and what sockets hold.
        assert server.sent_bytes < MUCH // 2


def drip(whole_answer: bytes, start: int) -> Answer:
    """`whole_answer`, a byte now and then from `start` on; the rest at once when that has lasted too long."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(whole_answer[:start])
        for at in range(start, min(start + PAUSES, len(whole_answer))):
            connection.sendall(whole_answer[at : at + 1])
            time.sleep(PAUSE_S)
        connection.sendall(whole_answer[start + PAUSES :])

    return answer


PADDED = listing() + b" " * 600


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (LIST, drip(whole(PADDED), len(whole(PADDED)) - 590)),
        (LIST, drip(whole(PADDED, headers=f"X-Long: {'x' * 600}\r\n"), 20)),
        (HEAD, drip(whole(b"", headers=f"X-Long: {'x' * 600}\r\n"), 20)),
        (PUT, drip(whole(b"", headers=f"X-Long: {'x' * 600}\r\n"), 20)),
    ],
    ids=["list", "head of a list", "head", "put"],
)
def test_an_answer_that_drips_is_left_and_its_thread_is_free_again(ask: Ask, answer: Answer) -> None:
    with hostile_s3(answer, read_timeout_ms=300) as (store, server):
        with pytest.raises(StoreUnavailable, match="2 times"):
            ask(store)
        assert len(server.asked) == 2


def test_a_list_that_breaks_off_where_its_xml_is_whole_is_asked_for_again() -> None:
    def short(connection: socket.socket, request: bytes) -> None:
        connection.sendall(whole(PADDED)[:-1])

    with hostile_s3(short) as (store, server):
        with pytest.raises(StoreUnavailable, match="2 times"):
            LIST(store)
        assert len(server.asked) == 2


def test_a_store_that_only_says_go_on_is_left() -> None:
    def interim(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000 + whole(listing()))

    with hostile_s3(interim) as (store, _), pytest.raises(StoreUnavailable):
        LIST(store)


@pytest.mark.parametrize("ask", [GET, LIST])
def test_an_error_that_breaks_off_is_a_store_that_is_away(ask: Ask) -> None:
    def broken(connection: socket.socket, request: bytes) -> None:
        connection.sendall(f"HTTP/1.1 404 Not Found\r\n{ENDLESS}\r\n10\r\nabc".encode())

    with hostile_s3(broken) as (store, _), pytest.raises(StoreUnavailable, match="2 times"):
        ask(store)


@pytest.mark.parametrize(
    "page",
    [
        listing("theirs/object"),
        listing("mine/checkpoints/cluster.json"),
        listing("mine/segments/b", "mine/segments/a"),
        listing("mine/segments/a", "mine/segments/a"),
        listing("mine/segments/"),
        listing(*(f"mine/segments/{number:04}" for number in range(1001))),
        b"<ListBucketResult><Contents><Key>mine/segments/a</Key></Contents></ListBucketResult>",
        b"<ListBucketResult><Contents><Key>mine/segments/a</Key><Size>-3</Size></Contents></ListBucketResult>",
    ],
    ids=["other prefix", "other kind", "order", "twice", "too early", "too many", "no size", "less than nothing"],
)
def test_a_listing_of_what_was_not_asked_for_is_no_answer(page: bytes) -> None:
    def answer(connection: socket.socket, request: bytes) -> bool:
        connection.sendall(whole(page))
        return True

    with hostile_s3(answer) as (store, _), pytest.raises(StoreUnavailable, match=r"a listing|no answer of S3"):
        store.list("segments/", start_after="segments/")


def test_uploads_of_others_are_not_ended() -> None:
    def answer(connection: socket.socket, request: bytes) -> bool:
        connection.sendall(whole(uploads("mine/segments/a", "theirs/object")))
        return True

    with hostile_s3(answer) as (store, server):
        with pytest.raises(StoreUnavailable, match="a listing of other uploads"):
            UPLOADS(store)
        assert not [each for each in server.asked if each.startswith("DELETE")]


def test_uploads_that_cannot_be_ended_are_left_for_the_next_time() -> None:
    def answer(connection: socket.socket, request: bytes) -> bool:
        found = uploads(*(f"mine/segments/{number}" for number in range(50)))
        connection.sendall(whole(b"", status="500 Oh") if request.startswith(b"DELETE") else whole(found))
        return True

    with hostile_s3(answer) as (store, server):
        assert UPLOADS(store) == ()
        assert len(server.asked) == 1 + 2 * _MOST_REFUSED_IN_A_ROW


def test_one_connection_serves_answers_of_every_kind() -> None:
    def answer(connection: socket.socket, request: bytes) -> bool:
        if request.startswith(b"HEAD"):
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nETag: "x"\r\n\r\n')
        elif b"list-type" in request.split(b"\r\n")[0]:
            connection.sendall(whole(listing("mine/segments/a")))
        elif b"\r\nRange:" in request:
            connection.sendall(whole(b"abc", status="206 Partial", headers=RANGE))
        else:
            connection.sendall(whole(b""))
        return True

    with hostile_s3(answer) as (store, server):
        for _ in range(2):
            assert LIST(store) == [("segments/a", 3)]
            assert GET(store) == b"abc"
            HEAD(store)
            PUT(store)
            GET_ALL(store)
        assert server.connections == 1


def test_headers_that_are_none_leave_no_stack_trace(caplog: pytest.LogCaptureFixture) -> None:
    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(whole(listing(), headers="no header\r\n"))

    with hostile_s3(answer) as (store, _):
        LIST(store)
    # Of a client that another test left behind, its thread goes on to log.
    assert not [record for record in caplog.records if not record.name.startswith("kafka.")]


@pytest.mark.parametrize(
    ("date", "words"),
    [
        ("Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n", r"clock is \d{8,} s ahead of the store's: let NTP set it"),
        ("Date: Thu, 01 Jan 2099 00:00:00 GMT\r\n", r"clock is \d{8,} s behind the store's: let NTP set it"),
        ("", "clock is wrong: let NTP set it"),
        ("Date: never\r\n", "clock is wrong: let NTP set it"),
    ],
)
def test_a_clock_that_is_off_is_what_the_refusal_speaks_of(date: str, words: str) -> None:
    refusal = whole(b"<Error><Code>RequestTimeTooSkewed</Code></Error>", status="403 Forbidden", headers=date)
    with hostile_s3(lambda connection, _: connection.sendall(refusal)) as (store, _):
        with pytest.raises(StoreRefused, match=words) as refused:
            LIST(store)
    assert "403 RequestTimeTooSkewed" in str(refused.value)
    assert _why_not(store, refused.value).startswith("Set this machine's clock")


@pytest.mark.parametrize(
    ("names", "status"), [("abc", Status.OK), ("bca", Status.FAIL), ("ac", Status.FAIL), ("", Status.FAIL)]
)
def test_the_doctor_finds_a_store_that_lists_in_another_order_or_late(names: str, status: Status) -> None:
    def answer(connection: socket.socket, request: bytes) -> bool:
        page = listing(*(f"mine/probes/k/{name}" for name in names))
        connection.sendall(whole(page if request.startswith(b"GET") else b""))
        return True

    with hostile_s3(answer) as (store, server):
        assert _listing(store, "probes/k").status is status
    assert sum(asked.startswith("DELETE") for asked in server.asked) == 3


@pytest.mark.parametrize(
    ("date", "trouble"),
    [
        ("Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n", StoreTrouble.SKEWED),
        (f"Date: {formatdate(usegmt=True)}\r\n", StoreTrouble.DENIED),
        ("", StoreTrouble.DENIED),
    ],
)
def test_a_refusal_without_a_body_tells_of_a_clock_that_is_off_by_its_date(date: str, trouble: StoreTrouble) -> None:
    refusal = f"HTTP/1.1 403 Forbidden\r\n{date}Content-Length: 0\r\n\r\n".encode()
    with hostile_s3(lambda connection, _: connection.sendall(refusal)) as (store, _):
        with pytest.raises(StoreRefused) as refused:
            HEAD(store)
    assert refused.value.trouble is trouble


@pytest.mark.parametrize(
    ("status", "code", "trouble", "advice"),
    [
        ("400 Bad Request", "ExpiredToken", StoreTrouble.EXPIRED, "renew the credentials where they come from"),
        ("400 Bad Request", "TokenRefreshRequired", StoreTrouble.EXPIRED, "renew the credentials where they come from"),
        (
            "403 Forbidden",
            "InvalidAccessKeyId",
            StoreTrouble.CREDENTIALS,
            "a broker that runs reads them again by itself",
        ),
        ("403 Forbidden", "SignatureDoesNotMatch", StoreTrouble.CREDENTIALS, "does not know these credentials"),
        ("403 Forbidden", "RequestTimeTooSkewed", StoreTrouble.SKEWED, "clock is wrong: let NTP set it"),
        ("403 Forbidden", "AccessDenied", StoreTrouble.DENIED, "the credentials and their permissions"),
        ("403 Forbidden", "SomethingNew", StoreTrouble.DENIED, "the credentials and their permissions"),
        ("403 Forbidden", "AccessDenied protected by object lock", StoreTrouble.LOCKED, "wait for its end, or lift it"),
        ("400 Bad Request", "ObjectLocked", StoreTrouble.LOCKED, "wait for its end, or lift it"),
        ("404 Not Found", "NoSuchBucket", StoreTrouble.NO_BUCKET, "create the bucket, or name another"),
        ("503 Service Unavailable", "SlowDown", StoreTrouble.SLOW, "asks for fewer requests"),
        ("429 Too Many Requests", "Whatever", StoreTrouble.SLOW, "asks for fewer requests"),
        ("500 Internal Server Error", "InternalError", StoreTrouble.AWAY, "try again later"),
        ("403 Forbidden", "InvalidObjectState", StoreTrouble.ARCHIVED, "restore it from there"),
        ("507 Insufficient Storage", "XMinioStorageFull", StoreTrouble.FULL, "no room left"),
        ("507 Insufficient Storage", "Whatever", StoreTrouble.FULL, "no room left"),
        ("400 Bad Request", "XMinioAdminBucketQuotaExceeded", StoreTrouble.FULL, "raise the quota"),
        ("403 Forbidden", "QuotaExceeded", StoreTrouble.FULL, "raise the quota"),
        ("403 Forbidden", "QUOTA_EXCEEDED", StoreTrouble.FULL, "raise the quota"),
        ("503 Service Unavailable", "QuotaExceeded", StoreTrouble.SLOW, "asks for fewer requests"),
    ],
)
def test_each_kind_of_refusal_has_its_word_and_says_what_helps(
    status: str, code: str, trouble: StoreTrouble, advice: str
) -> None:
    code, _, message = code.partition(" ")
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    refusal = whole(body, status=status)
    with hostile_s3(lambda connection, _: connection.sendall(refusal)) as (store, _):
        timed = TimedStore(store, SystemClock())
        with pytest.raises(StoreUnavailable) as failed:
            timed.get("k", max_bytes=10)
        passes = trouble in (StoreTrouble.AWAY, StoreTrouble.SLOW)
        assert isinstance(failed.value, StoreRefused) is not passes
        assert timed.trouble is failed.value.trouble is trouble
        assert advice in str(failed.value)
        assert code in str(failed.value)

        of_one_object = trouble in (StoreTrouble.DENIED, StoreTrouble.LOCKED, StoreTrouble.ARCHIVED)
        with pytest.raises(StoreUnavailable):
            timed.delete("k")
        assert timed.trouble is (None if of_one_object else trouble)
