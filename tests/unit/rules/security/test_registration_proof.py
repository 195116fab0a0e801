"""Who may ask as a broker: the process that registered as it, and nobody who merely knows its number."""

from uuid import RFC_4122, UUID, uuid4

from tiered.rules.security.registration_proof import ID_BYTES, PROVING_VERSION, is_proved, proving_id


def test_a_registration_is_proved_by_its_own_id_alone() -> None:
    registered, other = proving_id(b"a" * ID_BYTES), proving_id(b"b" * ID_BYTES)
    assert is_proved(registered, UUID(bytes=registered.bytes))
    assert not is_proved(registered, other)
    assert not is_proved(registered, None)
    assert not is_proved(registered, UUID(int=0))


def test_registrations_of_earlier_versions_are_believed() -> None:
    assert is_proved(None, None)
    assert is_proved(uuid4(), None)
    assert is_proved(uuid4(), uuid4())


def test_an_id_keeps_its_random_bits_and_says_what_it_is() -> None:
    for random in (b"\x00" * ID_BYTES, b"\xff" * ID_BYTES, bytes(range(ID_BYTES))):
        made = proving_id(random)
        assert (made.version, made.variant) == (PROVING_VERSION, RFC_4122)
        changed = int.from_bytes(random, "big") ^ made.int
        assert not changed & ~(0xF << 76 | 0x3 << 62)
