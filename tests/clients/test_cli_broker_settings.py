"""`tiered brokers config` against a broker: what it sets it shows, with where it came from, and takes back."""

from collections.abc import Iterator

import pytest

from tests.broker_process import BrokerProcess
from tests.support.command_line import Tiered


@pytest.fixture
def tiered(broker: BrokerProcess) -> Iterator[Tiered]:
    found = Tiered(broker)
    yield found
    for each in found.json("brokers", "config", "show"):
        if each["source"] in ("broker", "all brokers"):
            of = ["--broker", str(each["broker"])] if each["source"] == "broker" else []
            found.run("brokers", "config", "delete", each["name"], *of)


def shown(tiered: Tiered, *names: str) -> dict[str, tuple[str | None, str, bool]]:
    found = tiered.json("brokers", "config", "show", *names)
    return {each["name"]: (each["value"], each["source"], each["has_effect"]) for each in found}


def test_settings_are_set_shown_and_taken_back(tiered: Tiered) -> None:
    said = tiered.out("brokers", "config", "set", "num.partitions=3", "background.threads=4", "log.retention.ms=7d")
    assert said.decode().splitlines() == [
        "num.partitions=3 set for all brokers",
        "background.threads=4 set for all brokers; it has no effect here",
        "log.retention.ms=604800000 set for all brokers",
    ]
    tiered.out("brokers", "config", "set", "num.partitions=5", "--broker", "1")
    found = shown(tiered)
    assert found["num.partitions"] == ("5", "broker", True)
    assert found["background.threads"] == ("4", "all brokers", False)
    assert "num.io.threads" not in found
    assert shown(tiered, "num.io.threads")["num.io.threads"][1] == "default"
    lines = [line.split() for line in tiered.out("brokers", "config", "show").decode().splitlines()]
    assert lines[0] == ["KEY", "VALUE", "FROM", "BROKER", "NOTE"]
    assert ["background.threads", "4", "all", "brokers", "all", "no", "effect"] in lines
    said = tiered.out("brokers", "config", "delete", "num.partitions", "--broker", "1")
    assert said == b"num.partitions taken back for broker 1\n"
    assert shown(tiered, "num.partitions")["num.partitions"] == ("3", "all brokers", True)
    assert len(tiered.json("brokers", "config", "show", "--all-configs")) > 344


def test_what_cannot_be_set_is_said_and_nothing_is_set(tiered: Tiered) -> None:
    def refused(*words: str, code: int = 1) -> str:
        return tiered.failure("brokers", "config", *words, code=code)

    assert "no broker setting num.partitons (did you mean num.partitions" in refused("set", "num.partitons=3")
    assert "no broker setting num.partitons (did you mean" in refused("show", "num.partitons")
    assert "num.partitions=many is not allowed" in refused("set", "num.partitions=many", "background.threads=3")
    words = "nothing was changed: Cannot update these configs dynamically: socket.request.max.bytes"
    assert words in refused("set", "socket.request.max.bytes=5000", "background.threads=3")
    assert "num.partitions was not set for all brokers" in refused("delete", "num.partitions")
    assert "there is no broker 7" in refused("set", "num.partitions=3", "--broker", "7")
    assert "must be KEY=VALUE" in refused("set", "num.partitions", code=2)
    assert "is given twice" in refused("set", "num.partitions=1", "num.partitions=2", code=2)
    tiered.out("brokers", "config", "set", "num.partitions=3", "--validate-only")
    assert shown(tiered, "num.partitions", "background.threads")["num.partitions"][1] == "default"
    tiered.out("brokers", "config", "set", "my.plugin=secret", "--unknown")
    assert shown(tiered)["my.plugin"] == (None, "all brokers", False)
    assert "secret" not in tiered.out("brokers", "config", "show").decode()
