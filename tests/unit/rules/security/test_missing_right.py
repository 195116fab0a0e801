"""The words of a refusal: who, which right, on what, and the command that gives it."""

from tiered.rules.security.acl import Operation, ResourceType
from tiered.rules.security.missing_right import MAX_SHOWN_NAME, missing_right


def test_the_command_can_be_pasted_whatever_the_names_hold() -> None:
    said = missing_right("User:CN=a b", Operation.ALTER_CONFIGS, ResourceType.GROUP, "it's; rm -rf")
    assert said.startswith("User:CN=a b lacks the right ALTER_CONFIGS on group it's; rm -rf; ")
    assert "--principal 'User:CN=a b' --operation alter-configs --group 'it'\"'\"'s; rm -rf'` gives it" in said


def test_a_name_that_is_an_id_or_too_long_has_no_command() -> None:
    for name, is_id in (("4f", True), ("x" * (MAX_SHOWN_NAME + 1), False)):
        said = missing_right("User:a", Operation.READ, ResourceType.TOPIC, name, is_id=is_id)
        assert said == f"User:a lacks the right READ on topic {name[:MAX_SHOWN_NAME]}"


def test_who_is_not_logged_in_is_offered_no_rule() -> None:
    said = missing_right("", Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
    assert said == "who is not logged in lacks the right CLUSTER_ACTION on the cluster"
