"""What every object store must do: one suite, run on each implementation.

`TIERED_TEST_S3=s3://bucket/prefix?…` adds a store of your own (LocalStack, MinIO, S3) with the credentials of
AWS's usual chain.
"""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fault_s3.moto_server import aws_environment, moto_s3, store_url
from tiered.cold.object_store import ObjectStore
from tiered.cold.opening import open_store
from tiered.cold.own_store import OwnStore
from tiered.errors import (
    CorruptFile,
    CorruptObject,
    Invalid,
    LostRace,
    ObjectExists,
    ObjectMissing,
    UploadOverdue,
)
from tiered.runtime import SystemClock

OWN_STORE = os.environ.get("TIERED_TEST_S3")
KINDS = ["local", "ours", "moto", *(["own"] if OWN_STORE else [])]


@pytest.fixture(scope="module")
def endpoint_url() -> Iterator[str]:
    with moto_s3() as url:
        yield url


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    match request.param:
        case "local":
            (tmp_path / "objects").mkdir()
            opened = open_store((tmp_path / "objects").as_uri())
            yield opened
            opened.close()
        case "ours":
            (tmp_path / "objects").mkdir()
            opened = OwnStore(open_store((tmp_path / "objects").as_uri()), SystemClock())
            opened.is_ours = True
            yield opened
            opened.close()
        case "moto":
            with aws_environment():
                opened = open_store(store_url(request.getfixturevalue("endpoint_url"), f"p-{uuid4()}"))
                yield opened
                opened.close()
        case _:
            assert OWN_STORE is not None
            base, _, query = OWN_STORE.partition("?")
            opened = open_store(f"{base.rstrip('/')}/{uuid4()}" + (f"?{query}" if query else ""))
            yield opened
            for key, _ in opened.list("", limit=100_000):
                opened.delete(key)
            opened.close()


@pytest.fixture
def segment_file(tmp_path: Path) -> Iterator[Callable[[bytes], int]]:
    opened: list[int] = []

    def write(data: bytes) -> int:
        path = tmp_path / f"{uuid4()}.log"
        path.write_bytes(data)
        opened.append(os.open(path, os.O_RDONLY))
        return opened[-1]

    yield write
    for fd in opened:
        os.close(fd)


def test_what_was_put_is_read_back_whole_and_in_ranges(store: ObjectStore) -> None:
    data = os.urandom(100_000)
    info = store.put("a/b/c.bin", data)
    assert info.size_bytes == len(data)
    assert store.get("a/b/c.bin", max_bytes=100_000) == (data, info.etag)
    assert store.head("a/b/c.bin") == info
    assert store.get_range("a/b/c.bin", 0, 1) == data[:1]
    assert store.get_range("a/b/c.bin", 99_000, 1_000) == data[99_000:]
    assert store.get_range("a/b/c.bin", 12_345, 4_321) == data[12_345 : 12_345 + 4_321]


def test_a_range_fills_the_buffer_that_it_is_read_into_and_nothing_beside_it(store: ObjectStore) -> None:
    data = os.urandom(1_000_000)
    store.put("k", data)
    buffer = bytearray(b"." * 900_000)
    store.read_into("k", 12_345, memoryview(buffer)[100:800_000])
    assert buffer == b"." * 100 + data[12_345 : 12_345 + 799_900] + b"." * 100_000
    store.read_into("k", 999_999, memoryview(buffer)[:1])
    assert buffer[:2] == data[-1:] + b"."


def test_a_range_comes_with_the_objects_file_where_it_is_one(store: ObjectStore) -> None:
    data = os.urandom(1_000_000)
    store.put("a/k", data)
    file = store.read_into("a/k", 12_345, memoryview(bytearray(10)))
    assert (file is not None) == store.url.startswith("file:")
    if file is not None:
        assert Path(str(file.name)).read_bytes() == os.pread(file.fileno(), 2_000_000, 0) == data


def test_empty_object_is_an_object(store: ObjectStore) -> None:
    assert store.put("empty", b"").size_bytes == 0
    assert store.get("empty", max_bytes=0)[0] == b""
    found = store.head("empty")
    assert found is not None
    assert found.size_bytes == 0


def test_missing_object_is_named_in_the_error(store: ObjectStore) -> None:
    with pytest.raises(ObjectMissing, match=r"no/such\.object"):
        store.get("no/such.object", max_bytes=10)
    with pytest.raises(ObjectMissing, match=r"no/such\.object"):
        store.get_range("no/such.object", 0, 10)
    with pytest.raises(ObjectMissing, match=r"no/such\.object"):
        store.read_into("no/such.object", 0, memoryview(bytearray(10)))
    assert store.head("no/such.object") is None


def test_range_beyond_the_end_is_a_truncated_object(store: ObjectStore) -> None:
    store.put("short", b"0123456789")
    with pytest.raises(CorruptObject, match="short"):
        store.get_range("short", 5, 6)
    with pytest.raises(CorruptObject, match="short"):
        store.get_range("short", 10, 1)
    with pytest.raises(CorruptObject, match="short"):
        store.read_into("short", 5, memoryview(bytearray(6)))


def test_object_larger_than_its_bound_is_not_read(store: ObjectStore) -> None:
    store.put("large", b"0123456789")
    with pytest.raises(CorruptObject, match="large"):
        store.get("large", max_bytes=9)


def test_plain_put_replaces(store: ObjectStore) -> None:
    first = store.put("k", b"one")
    second = store.put("k", b"two, longer")
    assert first.etag != second.etag
    assert store.get("k", max_bytes=100) == (b"two, longer", second.etag)


def test_create_only_put_leaves_an_existing_object_alone(store: ObjectStore) -> None:
    store.put("k", b"one", create_only=True)
    with pytest.raises(ObjectExists, match="k"):
        store.put("k", b"two", create_only=True)
    assert store.get("k", max_bytes=10)[0] == b"one"


def test_of_many_create_only_puts_exactly_one_wins(store: ObjectStore) -> None:
    won = _race(8, lambda number: store.put("race", b"%d" % number * 100, create_only=True))
    assert len(won) == 1
    assert store.get("race", max_bytes=1_000)[0] == b"%d" % won[0] * 100


def test_put_with_a_stale_etag_is_refused(store: ObjectStore) -> None:
    first = store.put("head.json", b"one")
    second = store.put("head.json", b"two", if_match=first.etag)
    with pytest.raises(LostRace):
        store.put("head.json", b"three", if_match=first.etag)
    assert store.get("head.json", max_bytes=10) == (b"two", second.etag)


def test_put_with_an_etag_needs_the_object_to_exist(store: ObjectStore) -> None:
    etag = store.put("gone", b"one").etag
    store.delete("gone")
    with pytest.raises(LostRace):
        store.put("gone", b"two", if_match=etag)
    assert store.head("gone") is None


def test_of_many_puts_on_one_etag_exactly_one_wins(store: ObjectStore) -> None:
    etag = store.put("race", b"start").etag
    won = _race(8, lambda number: store.put("race", b"%d" % number * 100, if_match=etag))
    assert len(won) == 1
    assert store.get("race", max_bytes=1_000)[0] == b"%d" % won[0] * 100


def _race(writers: int, put: Callable[[int], object]) -> list[int]:
    won: list[int] = []
    other: list[BaseException] = []
    start = threading.Barrier(writers)

    def write(number: int) -> None:
        start.wait()
        try:
            put(number)
            won.append(number)
        except (ObjectExists, LostRace):
            pass
        except BaseException as error:
            other.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert other == []
    return won


def test_delete_is_idempotent(store: ObjectStore) -> None:
    store.put("x/y/z", b"1")
    store.delete("x/y/z")
    store.delete("x/y/z")
    store.delete("never/was")
    assert store.head("x/y/z") is None
    assert store.list("") == []


def test_list_is_in_byte_order_and_only_below_the_prefix(store: ObjectStore) -> None:
    keys = ["a/b", "a-b", "a.b", "a/b-c/d", "a/b.c", "a/bc", "ab", "b/1", "a/B", "a/b_"]
    for key in keys:
        if key != "a/b":
            store.put(key, key.encode())
    expected = sorted(set(keys) - {"a/b"})
    assert [key for key, _ in store.list("")] == expected
    assert store.list("a/b") == [(key, len(key)) for key in expected if key.startswith("a/b")]
    assert store.list("a/") == [(key, len(key)) for key in expected if key.startswith("a/")]
    assert store.list("zzz") == store.list("a\nb/c/") == store.list("../") == []


def test_list_goes_on_after_a_key(store: ObjectStore) -> None:
    keys = [f"t/{number // 4}/{number:03d}" for number in range(14)]
    for key in keys:
        store.put(key, b"x")
    found: list[str] = []
    while page := store.list("t/", start_after=found[-1] if found else None, limit=3):
        assert len(page) <= 3
        found += [key for key, _ in page]
    assert found == keys
    assert [key for key, _ in store.list("t/", start_after="t/1/0055")] == keys[6:]


def test_longest_topic_name_makes_a_usable_key(store: ObjectStore) -> None:
    keys = [f"segments/0a1b/{'n' * 249}_{uuid4()}/{partition}/x.seg" for partition in range(2)]
    keys.append(f"segments/0a1b/{'n' * 249}/x.seg")
    for key in keys:
        store.put(key, b"x", create_only=True)
    assert [key for key, _ in store.list("segments/")] == sorted(keys)
    for key in keys:
        assert store.get(key, max_bytes=1)[0] == b"x"
        store.delete(key)
    assert store.list("") == []


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", "a b", "a\\b", "~tiered/lock", "é"])
def test_illegal_key_is_refused(store: ObjectStore, key: str) -> None:
    with pytest.raises(Invalid):
        store.put(key, b"x")
    with pytest.raises(Invalid):
        store.get(key, max_bytes=1)


def test_the_beginning_of_other_keys_is_no_object(store: ObjectStore) -> None:
    store.put("a/b", b"x")
    assert store.head("a") is None
    with pytest.raises(ObjectMissing):
        store.get("a", max_bytes=1)
    with pytest.raises(ObjectMissing):
        store.get_range("a", 0, 1)


def test_segment_is_the_first_bytes_of_the_file_then_the_tail(
    store: ObjectStore, segment_file: Callable[[bytes], int]
) -> None:
    log = os.urandom(3_000_000)
    fd = segment_file(log + b"appended later, not part of the segment")
    info = store.put_segment("segments/a.seg", fd, len(log), b"tail" * 1000)
    assert info.size_bytes == len(log) + 4000
    assert store.get("segments/a.seg", max_bytes=4_000_000)[0] == log + b"tail" * 1000
    found = store.head("segments/a.seg")
    assert found is not None
    assert found.size_bytes == info.size_bytes


def test_segment_of_several_parts_arrives_whole(store: ObjectStore, segment_file: Callable[[bytes], int]) -> None:
    log = os.urandom((8 << 20) * 2 - 100)
    info = store.put_segment("segments/b.seg", segment_file(log), len(log), b"t" * 300)
    assert info.size_bytes == len(log) + 300
    assert store.get("segments/b.seg", max_bytes=info.size_bytes)[0] == log + b"t" * 300


@pytest.mark.parametrize("log_bytes", [1_000, 9 << 20])
def test_segment_never_replaces_an_object(
    store: ObjectStore, segment_file: Callable[[bytes], int], log_bytes: int
) -> None:
    store.put("segments/c.seg", b"first")
    with pytest.raises(ObjectExists):
        store.put_segment("segments/c.seg", segment_file(bytes(log_bytes)), log_bytes, b"tail")
    assert store.get("segments/c.seg", max_bytes=10)[0] == b"first"
    assert store.abort_abandoned_uploads("", started_before_ms=1 << 62) == ()


@pytest.mark.parametrize("missing_bytes", [1, 5 << 20])
def test_segment_file_that_is_too_short_leaves_no_object(
    store: ObjectStore, segment_file: Callable[[bytes], int], missing_bytes: int
) -> None:
    fd = segment_file(bytes(5 << 20))
    with pytest.raises(CorruptFile):
        store.put_segment("segments/d.seg", fd, (5 << 20) + missing_bytes, b"tail")
    assert store.list("") == []
    assert store.abort_abandoned_uploads("", started_before_ms=1 << 62) == ()


@pytest.mark.parametrize("log_bytes", [1_000, 40 << 20], ids=["one-part", "parts"])
def test_an_upload_past_its_deadline_ends_and_leaves_nothing(
    store: ObjectStore, segment_file: Callable[[bytes], int], log_bytes: int
) -> None:
    fd = segment_file(bytes(log_bytes))
    with pytest.raises(UploadOverdue, match=r"tiered\.upload\.timeout\.ms"):
        store.put_segment("segments/e.seg", fd, log_bytes, b"tail", timeout_ms=0.0)
    assert store.list("segments/") == []
    assert store.abort_abandoned_uploads("", started_before_ms=1 << 62) == ()
    assert store.put_segment("segments/e.seg", fd, log_bytes, b"tail", timeout_ms=60_000.0).size_bytes == log_bytes + 4


def test_probe_finds_what_the_log_relies_on_and_leaves_nothing(store: ObjectStore) -> None:
    capabilities = store.probe()
    assert capabilities.create_only
    assert capabilities.if_match
    assert capabilities.checksum_accepted
    assert store.list("") == []


def test_url_opens_the_same_store_again(store: ObjectStore) -> None:
    store.put("k", b"v")
    again = open_store(store.url)
    assert again.url == store.url
    assert again.get("k", max_bytes=1)[0] == b"v"
    again.close()


def test_the_store_tells_how_old_an_object_is(store: ObjectStore) -> None:
    store.put("old", b"1")
    (first, second) = (store.head("old"), store.head("old"))
    assert first is not None
    assert second is not None
    assert first.age_ms is not None
    assert second.age_ms is not None
    # S3 tells whole seconds.
    assert -1_000.0 <= first.age_ms <= second.age_ms
