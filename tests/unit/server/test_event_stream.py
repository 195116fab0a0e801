"""Events of another broker's tail, however the network cuts them."""

from uuid import UUID

import pytest

from tiered.broker.people.tail import Behind, Ended, TailRecords
from tiered.errors import Retriable
from tiered.server.http.api.topic_tail import events_of, positions_in
from tiered.server.http.neighbours import event_stream
from tiered.server.http.neighbours.event_stream import EventSplitter, ReadEvent
from tiered.server.http.neighbours.forward import Neighbour, Unreachable

TOPIC = UUID(int=7)
LEADER = Neighbour(broker_id=2, http_host="127.0.0.1", http_port=1)
STREAM = (
    b'retry: 1000\nevent: start\nid: 0:5,3:7\ndata: {"topic_id": "%s", "positions": []}\n\n' % str(TOPIC).encode()
    + b'event: record\nid: 0:6,3:7\ndata: {"partition": 0, "offset": 5, "x": "\xc3\xa4"}\n\n'
    + b'event: record\nid: 0:9,3:7\ndata: {"partition": 0, "offset": 8, "x": ""}\n\n'
    + b'event: record\nid: 0:9,3:8\ndata: {"partition": 3, "offset": 7, "x": ""}\n\n'
    + b": heartbeat\nid: 0:20,3:8\n\n"
)


def test_stream_cut_after_every_byte_gives_the_same_events() -> None:
    whole = EventSplitter().feed(STREAM)
    assert [each.name for each in whole] == ["start", "record", "record", "record", ""]
    assert whole[-1] == ReadEvent("", "0:20,3:8", b"")
    splitter = EventSplitter()
    assert [event for at in range(len(STREAM)) for event in splitter.feed(STREAM[at : at + 1])] == whole
    for at in range(len(STREAM)):
        splitter = EventSplitter()
        assert splitter.feed(STREAM[:at]) + splitter.feed(STREAM[at:]) == whole


def test_event_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MAX_EVENT_BYTES", 1000)
    splitter = EventSplitter()
    with pytest.raises(Retriable):
        for _ in range(20):
            splitter.feed(b"data: " + b"x" * 100)


def test_records_that_follow_each_other_are_one_page_and_positions_are_those_after_it() -> None:
    found = list(events_of(EventSplitter().feed(STREAM), LEADER, TOPIC))
    first, second = found[1][0], found[2][0]
    assert isinstance(first, TailRecords)
    assert [offset for offset, _ in first.records] == [5, 8]
    assert (first.partition, first.next_offset, found[1][1]) == (0, 9, {0: 9, 3: 7})
    assert isinstance(second, TailRecords)
    assert (second.partition, second.next_offset) == (3, 8)
    assert found[0] == (None, {0: 5, 3: 7})
    assert found[-1] == (None, {0: 20, 3: 8}), "a filter held something back"


def test_leaders_word_on_slowness_is_not_passed_on_and_its_word_on_losses_is() -> None:
    def behind(reason: str) -> list[object]:
        data = b'{"reason": "%s", "message": "m", "skipped": true, "partitions": ' % reason.encode()
        data += b'[{"partition": 0, "from_offset": 5, "to_offset": 9}]}'
        return [event for event, _ in events_of([ReadEvent("behind", "0:9", data)], LEADER, TOPIC)]

    assert behind("slow") == [None]
    assert behind("cut_off") == [None]
    (lost,) = behind("deleted")
    assert isinstance(lost, Behind)
    assert (lost.missed[0].from_offset, lost.missed[0].to_offset) == (5, 9)


def test_end_of_the_topic_ends_the_tail_and_the_end_of_a_broker_does_not() -> None:
    def end(reason: str) -> object:
        data = b'{"reason": "%s", "message": "m"}' % reason.encode()
        return next(iter(events_of([ReadEvent("end", "0:9", data)], LEADER, TOPIC)))[0]

    assert end("topic_deleted") == Ended(reason="topic_deleted", message="m")
    with pytest.raises(Unreachable):
        end("shutting_down")


def test_another_topic_of_the_same_name_is_never_followed() -> None:
    start = ReadEvent("start", "0:0", b'{"topic_id": "another", "positions": []}')
    with pytest.raises(Unreachable):
        list(events_of([start], LEADER, TOPIC))


def test_positions_are_read_as_they_are_written() -> None:
    assert positions_in("0:15,11:7") == {0: 15, 11: 7}
    assert positions_in("") == {}
