"""Topics are kept in the order of their names, so that no list of them has to sort all in one step."""

from uuid import uuid4

from tiered.broker.partitions.topics import Topic, Topics
from tiered.config import TopicConfig
from tiered.ids import TopicId


def topic(name: str) -> Topic:
    return Topic(
        name=name, topic_id=TopicId(uuid4()), partition_count=1, config=TopicConfig(), overrides={}, partitions=()
    )


def known(*names: str) -> Topics:
    topics = Topics()
    for name in names:
        topics.put(topic(name))
    return topics


def test_topics_come_in_the_order_of_their_names_however_they_came_and_went() -> None:
    topics = known("m", "b", "z", "a", "B", "a-1")
    topics.put(topic("m"))  # Deleted and created anew: another id.
    topics.remove(topics.by_name("b"))
    topics.remove(topic("nobody"))
    topics.put(topic("c"))
    assert [topic.name for topic in topics] == ["B", "a", "a-1", "c", "m", "z"]
    assert len(topics) == 6
    assert list(topics)[4] is topics.by_name("m")


def test_a_page_begins_at_a_name_whether_or_not_its_topic_is_there() -> None:
    topics = known("c", "a", "e")
    pages = [[topic.name for topic in topics.from_name(name)] for name in ("", "a", "b", "c", "f")]
    assert pages == [["a", "c", "e"], ["a", "c", "e"], ["c", "e"], ["c", "e"], []]


def test_a_walk_that_pauses_passes_each_topic_once_whatever_comes_and_goes_meanwhile() -> None:
    topics = known("b", "d", "f", "h")
    walk, names = iter(topics), []
    for passed in walk:
        names.append(passed.name)
        if passed.name == "d":
            topics.put(topic("a"))
            topics.put(topic("e"))
            topics.remove(topics.by_name("d"))
            topics.remove(topics.by_name("f"))
            topics.put(topic("g"))
    assert names == ["b", "d", "e", "g", "h"]
