"""`messages.record_json`: what of a record's bytes is shown."""

import json

from tiered.broker.people.record_reader import StoredRecord
from tiered.formats.record_batch import Record
from tiered.server.http.messages.record_json import MAX_HEADERS, bytes_fields, record_fields, renderer


def stored(key: bytes | None = None, headers: tuple[tuple[str, bytes | None], ...] = ()) -> StoredRecord:
    record = Record(offset=3, timestamp_ms=5, key=key, value=None, headers=headers)
    return StoredRecord(record=record, is_log_append_time=False)


def test_long_value_is_cut_between_characters_and_says_so() -> None:
    cut = bytes_fields("ä".encode() * 100_000, max_bytes=7)
    assert cut is not None
    assert (cut["text"], cut["size_bytes"], cut["truncated"]) == ("äää", 200_000, True)
    whole = bytes_fields("ä".encode() * 100_000, max_bytes=1 << 20)
    assert whole is not None
    assert (whole["text"], whole["truncated"]) == ("ä" * 100_000, False)


def test_bytes_that_are_no_text_beyond_the_cut_are_not_shown_as_text() -> None:
    cut = bytes_fields(b"abc\xff", max_bytes=3)
    assert cut is not None
    assert (cut["text"], cut["base64"]) == (None, "YWJj")


def test_headers_share_one_bound_and_all_are_counted() -> None:
    fields = record_fields(stored(headers=(("a", b"12345"), ("b", b"678"))), field_bytes=6)
    assert [each["value"]["text"] for each in fields["headers"]] == ["12345", "6"]
    many = record_fields(stored(headers=(("h", None),) * (MAX_HEADERS + 5)), field_bytes=6)
    assert (len(many["headers"]), many["header_count"]) == (MAX_HEADERS, MAX_HEADERS + 5)


def test_what_a_record_is_about_comes_before_its_own_fields() -> None:
    line = json.loads(renderer(10, {"partition": 4})(stored(b"k")))
    assert list(line)[:2] == ["partition", "offset"]
