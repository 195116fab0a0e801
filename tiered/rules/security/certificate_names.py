"""The principal of a certificate: its subject as one text, mapped by the rules of a listener.

Owns RFC 2253's way of writing a name, as Java writes it, and Kafka's `ssl.principal.mapping.rules`. Must never decide
whether a certificate is to be believed: TLS has done that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import re2

from tiered.errors import Invalid, InvalidConfig
from tiered.rules.security.principal import ANONYMOUS, USER, Principal

DEFAULT = "DEFAULT"
MAX_RULES = 100
MAX_NAME_CHARS = 1_000
"""Longer than any name that somebody wants to write into an access control list."""

Subject = Sequence[Sequence[tuple[str, str]]]
"""As `ssl` gives it: relative names in the order of the certificate, each of one or more (attribute, value)."""

# The short names of RFC 2253; whatever is none of them Java writes as a number and bytes.
_SHORT = {
    "commonName": "CN", "countryName": "C", "localityName": "L", "stateOrProvinceName": "ST", "organizationName": "O",
    "organizationalUnitName": "OU", "streetAddress": "STREET", "domainComponent": "DC", "userId": "UID",
}  # fmt: skip
_NUMBERS = {
    "emailAddress": ("1.2.840.113549.1.9.1", 0x16), "serialNumber": ("2.5.4.5", 0x13), "surname": ("2.5.4.4", 0x0C),
    "givenName": ("2.5.4.42", 0x0C), "title": ("2.5.4.12", 0x0C), "initials": ("2.5.4.43", 0x0C),
    "dnQualifier": ("2.5.4.46", 0x13), "pseudonym": ("2.5.4.65", 0x0C), "businessCategory": ("2.5.4.15", 0x0C),
    "postalCode": ("2.5.4.17", 0x0C), "name": ("2.5.4.41", 0x0C), "description": ("2.5.4.13", 0x0C),
}  # fmt: skip
_SPECIAL = frozenset(',+"\\<>;')

_options: Any = re2.Options()
_options.log_errors = False
_options.max_mem = 1 << 20


def distinguished_name(subject: Subject) -> str:
    """The subject as RFC 2253 writes it, the last relative name first: `CN=alice,OU=ops,O=Example`."""
    return ",".join("+".join(_attribute(*pair) for pair in relative) for relative in reversed(subject))


def _attribute(name: str, value: str) -> str:
    if name in _SHORT:
        return f"{_SHORT[name]}={_escaped(value)}"
    number, tag = _NUMBERS.get(name, (name, 0x0C))
    content = value.encode()
    return f"{number}=#{(bytes([tag]) + _length(len(content)) + content).hex()}"


def _length(count: int) -> bytes:
    """A length in DER."""
    if count < 0x80:
        return bytes([count])
    data = count.to_bytes((count.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(data)]) + data


def _escaped(value: str) -> str:
    text = "".join(f"\\{each}" if each in _SPECIAL else each for each in value)
    if text.startswith(("#", " ")):
        text = f"\\{text}"
    if text.endswith(" ") and not text.endswith("\\ "):
        text = f"{text[:-1]}\\ "
    return text


class NoPrincipal(Invalid):
    """A certificate that no rule gives a name to: its owner is not let in."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """`RULE:pattern/replacement/` with L, U or nothing at its end."""

    pattern: Any
    replacement: tuple[str | int, ...]
    """Texts and the numbers of groups."""
    case: str

    def applied(self, name: str) -> str | None:
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        text = "".join(each if isinstance(each, str) else found.group(each) or "" for each in self.replacement)
        return {"L": _in_case(text, str.lower), "U": _in_case(text, str.upper)}.get(self.case, text)


def _in_case(text: str, change: Callable[[str], str]) -> str:
    """`text` in small or capital letters, but for letters that would become others of ASCII, which stay: a Kelvin sign
    is no k, nor a long s an S, or a certificate for such a name would be somebody else's."""
    if text.isascii():
        return change(text)
    pieces, begin = [], 0
    for at, letter in enumerate(text):
        if not letter.isascii() and any(each.isascii() for each in change(letter)):
            pieces += [change(text[begin:at]), letter]
            begin = at + 1
    return "".join([*pieces, change(text[begin:])])


class PrincipalMapping:
    """The rules of a listener, in their order: the first that matches the whole name decides."""

    def __init__(self, rules: str) -> None:
        """Raises InvalidConfig that shows the rule which is none."""
        self._rules: list[_Rule | None] = _parsed(rules)

    def principal(self, subject: Subject) -> Principal:
        """The principal of a certificate with this subject. Raises NoPrincipal when no rule matches."""
        name = distinguished_name(subject)
        for rule in self._rules:
            found = name if rule is None else rule.applied(name)
            if found and found != ANONYMOUS.name and len(found) <= MAX_NAME_CHARS:
                return Principal(USER, found)
        raise NoPrincipal(
            f"no rule of ssl.principal.mapping.rules gives a principal to the certificate of {name[:200]!r}: add "
            f"DEFAULT as the last one, or a rule that matches it and gives a name of up to {MAX_NAME_CHARS} characters "
            f"that is not {ANONYMOUS.name}: so is called who shows no certificate"
        )


def _parsed(text: str) -> list[_Rule | None]:
    rules: list[_Rule | None] = []
    at = 0
    while at < len(text):
        if text[at] in ", \t\n":
            at += 1
            continue
        if text.startswith(DEFAULT, at):
            rules.append(None)
            at += len(DEFAULT)
        elif text.startswith("RULE:", at):
            rule, at = _one_rule(text, at)
            rules.append(rule)
        else:
            raise _refused(text[at:], "rules begin with RULE: or are DEFAULT")
        if at < len(text) and text[at] not in ", \t\n":
            raise _refused(text[at:], "a comma stands between two rules")
    if len(rules) > MAX_RULES:
        raise InvalidConfig(f"ssl.principal.mapping.rules has {len(rules)} rules; {MAX_RULES} are allowed")
    return rules or [None]


def _one_rule(text: str, at: int) -> tuple[_Rule, int]:
    """The rule that begins at `at`, and where it ends. A slash within a part has a backslash before it."""
    start = at
    at += len("RULE:")
    parts = []
    for _ in range(2):
        part = ""
        while at < len(text) and text[at] != "/":
            if text[at] == "\\" and text[at + 1 : at + 2] == "/":
                at += 1
            elif text[at] == "\\":
                part += text[at]
                at += 1
            part += text[at : at + 1]
            at += 1
        if at >= len(text):
            raise _refused(text[start:], "a rule is RULE:pattern/replacement/ with L, U or nothing after it")
        parts.append(part)
        at += 1
    case = text[at] if at < len(text) and text[at] in "LU" else ""
    pattern, replacement = parts
    try:
        compiled = re2.compile(pattern, _options)
    except re2.error as error:
        raise _refused(text[start:], f"its pattern is no regular expression of RE2 ({error})") from None
    return _Rule(compiled, _replacement(replacement, compiled.groups, text[start:]), case), at + len(case)


def _replacement(text: str, groups: int, rule: str) -> tuple[str | int, ...]:
    """`$1` stands for the first group, `\\$` for a dollar."""
    parts: list[str | int] = []
    plain = ""
    at = 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text):
            plain += text[at + 1]
            at += 2
        elif text[at] == "$" and text[at + 1 : at + 2].isdigit():
            number = int(text[at + 1])
            if number > groups:
                raise _refused(rule, f"its pattern has no group {number}")
            parts += [plain, number]
            plain = ""
            at += 2
        else:
            plain += text[at]
            at += 1
    return (*parts, plain)


def _refused(text: str, why: str) -> InvalidConfig:
    return InvalidConfig(f"ssl.principal.mapping.rules: {text[:100]!r} is no rule: {why}")
