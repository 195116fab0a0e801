"""What must be said together about logins, and that no password can stand in a setting."""

from dataclasses import replace

import pytest

from tiered.config import BrokerSettings
from tiered.config.describe import describe_broker
from tiered.config.listeners import ListenerOptions, SecurityProtocol
from tiered.config.security import check_authentication
from tiered.errors import InvalidConfig

GUARDED = ListenerOptions(name="GUARDED", protocol=SecurityProtocol.SASL_PLAINTEXT)
PLAIN = ListenerOptions()
BROKERS = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "tiered.sasl.inter.broker.username": "brokers",
    "tiered.sasl.inter.broker.password": "env:PASSWORD",
}
TOKENS = {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": "https://id.example/keys"}


def check(listener: ListenerOptions, inter_broker: ListenerOptions, settings: dict[str, str]) -> None:
    check_authentication(BrokerSettings.of(settings).authentication, [listener, inter_broker], inter_broker)


@pytest.mark.parametrize(
    ("inter_broker", "settings", "words"),
    [
        (PLAIN, {}, "GUARDED has SASL and no mechanism"),
        (PLAIN, {"sasl.enabled.mechanisms": "PLAIN"}, "PLAIN needs TLS"),
        (PLAIN, {"sasl.enabled.mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms=GSSAPI is not allowed"),
        (PLAIN, {"sasl.enabled.mechanisms": "OAUTHBEARER"}, "needs sasl.oauthbearer.jwks.endpoint.url"),
        (
            PLAIN,
            {**TOKENS, "sasl.oauthbearer.jwks.endpoint.url": "http://id.example/keys"},
            "an https or a file:/// URL",
        ),
        (PLAIN, TOKENS, "needs sasl.oauthbearer.expected.audience"),
        (PLAIN, {**BROKERS, "tiered.sasl.inter.broker.password": "hunter2"}, "must be file:PATH or env:NAME"),
        (GUARDED, {"sasl.enabled.mechanisms": "SCRAM-SHA-512"}, "tiered.sasl.inter.broker.username"),
        (GUARDED, {**BROKERS, "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "is not among"),
    ],
)
def test_a_broker_does_not_start_that_would_keep_out_or_let_in_the_wrong(
    inter_broker: ListenerOptions, settings: dict[str, str], words: str
) -> None:
    with pytest.raises(InvalidConfig, match=words) as refused:
        check(GUARDED, inter_broker, settings)
    assert "hunter2" not in str(refused.value)


def test_a_broker_that_is_alone_needs_no_login_of_its_own() -> None:
    settings = BrokerSettings.of({"sasl.enabled.mechanisms": "SCRAM-SHA-512"})
    check_authentication(settings.authentication, [GUARDED], GUARDED, is_alone=True)


def test_what_is_complete_is_taken() -> None:
    check(GUARDED, GUARDED, BROKERS)
    check(GUARDED, PLAIN, {**TOKENS, "sasl.oauthbearer.expected.audience": "tiered"})
    check(GUARDED, PLAIN, {"sasl.enabled.mechanisms": "PLAIN", "tiered.sasl.plain.without.tls": "true"})
    check(PLAIN, PLAIN, {})


def test_plain_is_taken_over_tls_alone() -> None:
    settings = BrokerSettings.of({"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"})
    over_tls = ListenerOptions(protocol=SecurityProtocol.SASL_SSL)
    assert settings.authentication.mechanisms_of(GUARDED) == ("SCRAM-SHA-256",)
    assert settings.authentication.mechanisms_of(over_tls) == ("PLAIN", "SCRAM-SHA-256")
    assert settings.authentication.mechanisms_of(PLAIN) == ()


def test_where_the_password_stands_is_in_no_description() -> None:
    entry = next(
        each for each in describe_broker(BrokerSettings.of(BROKERS)) if each.name == "tiered.sasl.inter.broker.password"
    )
    assert (entry.value, entry.is_sensitive) == (None, True)
    assert "env:PASSWORD" not in repr(entry)


def test_a_listener_may_have_mechanisms_of_its_own() -> None:
    settings = BrokerSettings.of({"sasl.enabled.mechanisms": "SCRAM-SHA-512"})
    own = replace(GUARDED, mechanisms=("SCRAM-SHA-256", "PLAIN"))
    assert settings.authentication.mechanisms_of(own) == ("SCRAM-SHA-256",)
    assert settings.authentication.mechanisms_of(GUARDED) == ("SCRAM-SHA-512",)
    with pytest.raises(InvalidConfig, match="GSSAPI is not allowed"):
        check(replace(GUARDED, mechanisms=("GSSAPI",)), PLAIN, {})
    with pytest.raises(InvalidConfig, match="OAUTHBEARER needs"):
        check(replace(GUARDED, mechanisms=("OAUTHBEARER",)), PLAIN, {"sasl.enabled.mechanisms": "SCRAM-SHA-512"})
