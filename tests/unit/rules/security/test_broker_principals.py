"""Who is taken for a broker: names, and patterns with one star."""

import pytest

from tiered.errors import InvalidConfig
from tiered.rules.security.broker_principals import BrokerPrincipals

NOBODY: frozenset[str] = frozenset()


def principals(text: str) -> BrokerPrincipals:
    return BrokerPrincipals.parse(text, others=NOBODY)


def test_a_pattern_takes_every_broker_of_that_name_and_of_no_other() -> None:
    brokers = principals("User:CN=broker-*.tiered.internal,O=Example; User:broker-*")
    assert "User:CN=broker-1.tiered.internal,O=Example" in brokers
    assert "User:CN=broker-eu_west-12.tiered.internal,O=Example" in brokers
    assert "User:broker-7" in brokers
    for stranger in (
        "User:CN=broker-.tiered.internal,O=Example",  # nothing is no number
        "User:CN=broker-1.tiered.internal,O=Example,OU=guests",  # anchored at both ends
        "User:CN=x,CN=broker-1.tiered.internal,O=Example",
        "User:CN=broker-1.evil.tiered.internal,O=Example",  # no dot, comma, equals sign or escape inside
        "User:CN=broker-1,OU=x.tiered.internal,O=Example",
        "User:CN=broker-1\\,x.tiered.internal,O=Example",
        "User:CN=broker-1\n.tiered.internal,O=Example",
        "User:CN=broker-١.tiered.internal,O=Example",  # another alphabet's digit
        "User:CN=BROKER-1.tiered.internal,O=Example",
        "Group:broker-7",
        "User:broker-",
        "User:broker-*",
        "User:broker-7 ",
        "User:broker-7\n",
    ):
        assert stranger not in brokers, stranger


def test_what_stands_before_and_after_a_star_may_not_overlap() -> None:
    assert "User:broker" not in principals("User:broker*roker")
    assert "User:brokerxroker" in principals("User:broker*roker")


def test_names_without_a_star_and_those_of_other_settings_are_taken_as_they_are() -> None:
    brokers = BrokerPrincipals.parse("User:CN=broker-1,O=Example;", others=frozenset({"User:admin"}))
    assert "User:CN=broker-1,O=Example" in brokers
    assert "User:admin" in brokers
    assert "User:CN=broker-2,O=Example" not in brokers
    assert not principals(" ; ")
    assert principals("User:broker-*")


@pytest.mark.parametrize("text", ["User:*", "User:*-broker", "User:CN=*", "User:CN=*.example.com", "User:CN=a,O= *"])
def test_a_pattern_without_a_beginning_would_make_everybody_a_broker_and_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"tiered\.broker\.principals: .*strangers"):
        principals(text)


@pytest.mark.parametrize(("text", "said"), [("User:b*-*", "more than one"), ("broker-1", "KIND:NAME")])
def test_what_is_no_pattern_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        principals(text)
