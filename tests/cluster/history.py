"""What clients did and saw, each operation with its times and its outcome, compact on disk.

Owns the format: fixed records of 40 bytes, appended by the clients as they go and read once afterwards. Outcomes are
ok, fail (it did certainly not happen) and unknown. Must never decide whether what happened was right: `checker` does.
"""

import struct
import threading
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

NO_OFFSET = -1
_RECORD = struct.Struct(">BBHIqqQQ")
"""Kind, outcome, client, partition, offset, value, start and end in microseconds."""
_VALUE = struct.Struct(">QQ")
_SEQUENCE_BITS = 40
_INPUT_BITS = 18
MAGIC_VALUE = 0x50AC50AC50AC50AC


class Kind(IntEnum):
    SEND = 1
    SEND_ACKS_1 = 2
    """By a producer that asks for one acknowledgement: it may be lost, doubled and reordered."""
    POLL = 3
    """One record that a consumer was given."""
    SEEK = 4
    """A consumer begins at `offset`: its assignment, or a rebalance. `value` numbers the assignment."""
    COMMIT = 5
    """`value` numbers the assignment under which it was tried."""
    FETCHED = 6
    """A committed offset that was asked for, -1 for none."""
    ERROR = 7
    """A consumer was told something it must never hear; `value` is the error's code."""
    COMMIT_TRANSACTION = 8
    """`value` names the attempt, `offset` is how many inputs it processed."""
    ABORT_TRANSACTION = 9


class Outcome(IntEnum):
    OK = 1
    """A send without an offset is acknowledged by a later one's success: it is somewhere before that one."""
    FAIL = 2
    UNKNOWN = 3


class Operation(NamedTuple):
    """One operation. `client` is a producer, a consumer, or a group for what concerns committed offsets."""

    kind: Kind
    outcome: Outcome
    client: int
    partition: int
    """The index of topic and partition in the run's list of them."""
    offset: int
    value: int
    started_us: int
    ended_us: int


def value_of(producer: int, sequence: int) -> int:
    """The number of a value that no other send of the run has."""
    assert 0 <= sequence < 1 << _SEQUENCE_BITS
    return (producer << _SEQUENCE_BITS) | sequence


def producer_of(value: int) -> int:
    return value >> _SEQUENCE_BITS


def sequence_of(value: int) -> int:
    return value & ((1 << _SEQUENCE_BITS) - 1)


def transaction_value(client: int, attempt: int, number: int) -> int:
    """What a loop's attempt writes for the input with this number. No two attempts of a client write the same."""
    assert 0 <= number < 1 << _INPUT_BITS
    return value_of(client, (attempt << _INPUT_BITS) | number)


def attempt_of(value: int) -> tuple[int, int]:
    """The client and which of its attempts."""
    return producer_of(value), sequence_of(value) >> _INPUT_BITS


def input_of(value: int) -> int:
    """The number of the input of which this was made."""
    return sequence_of(value) & ((1 << _INPUT_BITS) - 1)


def encode_value(value: int, *, padding_bytes: int) -> bytes:
    """The bytes to send: they tell the value, and are not all alike, so that damage shows."""
    return _VALUE.pack(MAGIC_VALUE, value) + value.to_bytes(8, "big") * (padding_bytes // 8)


def decode_value(data: bytes) -> int:
    """The value. Raises ValueError when the bytes are not what `encode_value` made."""
    if len(data) < _VALUE.size:
        raise ValueError(f"a record of {len(data)} bytes, which no producer of this run sent")
    magic, value = _VALUE.unpack_from(data)
    rest = data[_VALUE.size :]
    if magic != MAGIC_VALUE or rest != value.to_bytes(8, "big") * (len(rest) // 8):
        raise ValueError(f"a record that no producer of this run sent: {data[:32].hex()}")
    found: int = value
    return found


class HistoryWriter:
    """Appends operations to one file. Safe between threads."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=1 << 16)
        self._lock = threading.Lock()

    def add(
        self,
        kind: Kind,
        *,
        client: int,
        partition: int,
        started_us: int,
        ended_us: int,
        outcome: Outcome = Outcome.OK,
        offset: int = NO_OFFSET,
        value: int = 0,
    ) -> None:
        record = _RECORD.pack(kind, outcome, client, partition, offset, value, started_us, ended_us)
        with self._lock:
            self._file.write(record)

    def flush(self) -> None:
        with self._lock:
            if not self._file.closed:
                self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_history(path: Path) -> Iterator[Operation]:
    """Every operation in the order of its end. A torn last record is left out."""
    data = path.read_bytes()
    whole = len(data) // _RECORD.size * _RECORD.size
    for kind, outcome, client, partition, offset, value, started_us, ended_us in _RECORD.iter_unpack(data[:whole]):
        yield Operation(Kind(kind), Outcome(outcome), client, partition, offset, value, started_us, ended_us)
