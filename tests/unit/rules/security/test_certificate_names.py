"""Who a certificate is: names as Java writes them, and Kafka's mapping rules."""

import pytest

from tiered.errors import InvalidConfig
from tiered.rules.security.certificate_names import NoPrincipal, PrincipalMapping, distinguished_name

ALICE = (
    (("countryName", "DE"),),
    (("organizationName", "Example, Inc."),),
    (("organizationalUnitName", "ops"),),
    (("commonName", "Alice"),),
)


def test_names_are_written_as_java_writes_them() -> None:
    assert distinguished_name(ALICE) == r"CN=Alice,OU=ops,O=Example\, Inc.,C=DE"
    assert distinguished_name(((("commonName", " #a+b "),),)) == r"CN=\ #a\+b\ "
    assert distinguished_name(((("commonName", "a"), ("userId", "u1")),)) == "CN=a+UID=u1"
    # Source: java.security X500Principal.getName() of emailAddress=a@b.
    assert distinguished_name(((("emailAddress", "a@b"),),)) == "1.2.840.113549.1.9.1=#1603614062"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", r"CN=Alice,OU=ops,O=Example\, Inc.,C=DE"),
        ("", r"CN=Alice,OU=ops,O=Example\, Inc.,C=DE"),
        ("RULE:^CN=(.*?),OU=ops.*$/$1/", "Alice"),
        ("RULE:^CN=(.*?),OU=ops.*$/$1@ops/L", "alice@ops"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$2-$1/U,DEFAULT", "OPS-ALICE"),
        ("RULE:^CN=(.*?),OU=none.*$/$1/, RULE:^.*C=(..)$/$1/L, DEFAULT", "de"),
        (r"RULE:CN=(\w+),.*/user\/$1/", "user/Alice"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_decides(rules: str, name: str) -> None:
    assert str(PrincipalMapping(rules).principal(ALICE)) == f"User:{name}"


@pytest.mark.parametrize(
    ("case", "shown", "name"),
    [
        ("L", "\N{KELVIN SIGN}im", "\N{KELVIN SIGN}im"),
        ("L", "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}DA", "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}da"),
        ("U", "\N{LATIN SMALL LETTER LONG S}am", "\N{LATIN SMALL LETTER LONG S}AM"),
        ("U", "wei\N{LATIN SMALL LETTER SHARP S}", "WEI\N{LATIN SMALL LETTER SHARP S}"),
        ("L", "ÄRGER ΟΔΟΣ", "ärger οδος"),
        ("U", "ärger", "ÄRGER"),
    ],
)
def test_a_change_of_case_makes_no_name_into_one_of_other_letters(case: str, shown: str, name: str) -> None:
    found = PrincipalMapping(f"RULE:^CN=(.*)$/$1/{case}").principal(((("commonName", shown),),))
    assert found.name == name


def test_who_no_rule_names_is_nobody() -> None:
    with pytest.raises(NoPrincipal, match="add DEFAULT"):
        PrincipalMapping("RULE:^CN=Bob$/bob/").principal(ALICE)
    with pytest.raises(NoPrincipal, match="up to 1000 characters") as refused:
        PrincipalMapping("DEFAULT").principal(((("commonName", "x" * 100_000),),))
    assert len(str(refused.value)) < 500
    with pytest.raises(NoPrincipal, match="not ANONYMOUS"):
        PrincipalMapping("RULE:^CN=(.*)$/$1/").principal(((("commonName", "ANONYMOUS"),),))


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("RULE:abc", "is no rule"),
        ("NONSENSE", "begin with RULE:"),
        ("RULE:(/x/", "no regular expression"),
        ("RULE:a/$1/", "no group 1"),
        ("DEFAULTRULE:a/b/", "a comma"),
    ],
)
def test_a_rule_that_is_none_is_refused_at_the_start(rules: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        PrincipalMapping(rules)
