"""Decoders, one for each message class: straight-line functions compiled from its plan.

Owns how bytes become values, and the bounds on it: an array must fit into the bytes that are left before
anything is allocated for it, and one message has at most `MAX_ITEMS` items in all its arrays together. Must
never let IndexError or struct.error out: bytes that do not parse are MalformedRequest.
"""

from collections.abc import Callable, Generator
from struct import unpack_from
from typing import Any, NoReturn

from tiered.errors import MalformedRequest
from tiered.wire.primitives import (
    MAX_ITEMS,
    MAX_STRING_BYTES,
    TRUNCATED,
    crowded,
    malformed,
    read_tag_count,
    read_uuid,
    read_varint,
    skip_tagged_fields,
    too_long,
)
from tiered.wire.schema import FieldPlan, Message, MessagePlan
from tiered.wire.source import Source

Decoder = Callable[[bytes, int], Any]
PiecewiseDecoder = Callable[[bytes, int], Generator[None, None, Any]]
_PIECE_ITEMS = 64
_PIECE_NUMBERS = 4096


def _null(name: str) -> NoReturn:
    raise MalformedRequest(f"{name} is null where the protocol demands a value; send one")


def _short(name: str, length: int) -> NoReturn:
    raise MalformedRequest(f"{name} announces {length} bytes or items, more than the message holds; send them all")


def _id(buffer: bytes, position: int) -> Any:
    """The id at `position`; None for an id of zeros, as everywhere in messages."""
    found, _ = read_uuid(buffer, position)
    return found if found.int else None


def decoder(message_class: type[Message]) -> Decoder:
    """A decoder for a message class, compiled now: (bytes, position of the body) -> message.

    The message may end before the bytes do: what is left is ignored, as Kafka does. Raises MalformedRequest.
    """
    what = message_class.__name__
    decode_all = _compiled(message_class.plan)

    def decode(buffer: bytes, position: int) -> Any:
        try:
            return decode_all(buffer, position, MAX_ITEMS)
        except TRUNCATED as error:
            raise malformed(what, error) from None

    return decode


def decoder_in_pieces(message_class: type[Message]) -> PiecewiseDecoder:
    """A decoder as `decoder` makes, which reads a piece with each step: some tens of items, at whatever depth, or
    thousands of numbers. What tagged fields have is one piece."""
    what = message_class.__name__
    decode_all = _compiled(message_class.plan, in_pieces=True)

    def decode(buffer: bytes, position: int) -> Generator[None, None, Any]:
        try:
            return (yield from decode_all(buffer, position, MAX_ITEMS))
        except TRUNCATED as error:
            raise malformed(what, error) from None

    return decode


def _build(source: Source) -> Any:
    return source.build(
        "decode",
        read_tag_count=read_tag_count,
        read_varint=read_varint,
        skip_tagged_fields=skip_tagged_fields,
        unpack_from=unpack_from,
        read_id=_id,
        null=_null,
        short=_short,
        too_long=too_long,
        crowded=crowded,
        new=object.__new__,
    )


def _compiled(plan: MessagePlan, *, in_pieces: bool = False) -> Callable[[bytes, int, int], Any]:
    source = Source()
    with source.block("def decode(b, p, left):"):
        source.line("end = len(b)")
        if in_pieces:
            source.line("items_read = 0")
        _read_message(source, plan, "message", in_pieces)
        if in_pieces:
            source.line("yield")  # What has no arrays is to be a generator, too.
        source.line("return message")
    decode: Callable[[bytes, int, int], Any] = _build(source)
    return decode


def _compiled_tag(field: FieldPlan) -> Callable[[bytes, int], Any]:
    """The decoder of one tagged field, given its content alone."""
    source = Source()
    with source.block("def decode(b, left):"):
        source.line("end = len(b)")
        source.line("p = 0")
        if field.format is not None and not field.is_array:
            source.line(f"value, = {source.unpacker(field.format)}(b, p)")
        else:
            _read_field(source, field, True, "value", False)
        source.line("return value")
    decode: Callable[[bytes, int], Any] = _build(source)
    return decode


def _read_message(source: Source, plan: MessagePlan, into: str, in_pieces: bool) -> None:
    values: dict[str, str] = {}
    run: list[tuple[str, str]] = []
    for field in plan.untagged:
        local = values[field.name] = source.name()
        if field.format is not None and not field.is_array:
            run.append((local, field.format))
            continue
        _read_run(source, run)
        _read_field(source, field, plan.flexible, local, in_pieces)
    _read_run(source, run)
    if plan.tagged:
        _read_tags(source, plan, values)
    elif plan.flexible:
        with source.block("if b[p]:"):
            source.line("p = skip_tagged_fields(b, p)")
        with source.block("else:"):
            source.line("p += 1")
    # A local name of its own: `into` may be the name of one of the values.
    made = source.name("made")
    source.line(f"{made} = new({source.constant(plan.message_class, 'Class')})")
    for name, local in values.items():
        source.line(f"{made}.{name} = {local}")
    source.line(f"{into} = {made}")


def _read_run(source: Source, run: list[tuple[str, str]]) -> None:
    """Neighbours of fixed size, with one call."""
    if run:
        layout = "".join(each for _, each in run)
        size = sum({"b": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4}.get(each, 8) for each in layout)
        source.line(f"{', '.join(local for local, _ in run)}, = {source.unpacker(layout)}(b, p)")
        source.line(f"p += {size}")
        run.clear()


def _read_field(source: Source, field: FieldPlan, flexible: bool, into: str, in_pieces: bool) -> None:
    """One field that is no part of a run: arrays, text, bytes, ids and structures."""
    if field.is_array:
        _read_array(source, field, flexible, into, in_pieces)
    elif field.message is None:
        _read_item(source, field, flexible, into)
    elif not field.is_nullable or field.tag is not None:
        _read_message(source, field.message, into, in_pieces)
    else:
        with source.block("if b[p] > 127:"):
            source.line("p += 1")
            source.line(f"{into} = None")
        with source.block("else:"):
            source.line("p += 1")
            _read_message(source, field.message, into, in_pieces)


def _read_length(source: Source, flexible: bool, text: str | None = None) -> str:
    """The name of the length that was read; -1 is null. `text` names the field where it is one."""
    length = source.name("n")
    if flexible:
        source.line(f"{length} = b[p]")
        source.line("p += 1")
        with source.block(f"if {length} > 127:"):
            source.line(f"{length}, p = read_varint(b, p - 1)")
            if text is not None:
                source.line(f'if {length} > {MAX_STRING_BYTES + 1}: too_long("{text}", {length} - 1)')
        source.line(f"{length} -= 1")
    else:
        source.line(f"{length}, = {source.unpacker('i' if text is None else 'h')}(b, p)")
        source.line(f"p += {4 if text is None else 2}")
    return length


def _read_null(source: Source, name: str, nullable: bool, length: str, into: str) -> None:
    """The lines for a length below zero; the caller goes on with `else`."""
    with source.block(f"if {length} < 0:"):
        if nullable:
            source.line(f'if {length} != -1: short("{name}", {length})')
            source.line(f"{into} = None")
        else:
            source.line(f'null("{name}")')


def _read_array(source: Source, field: FieldPlan, flexible: bool, into: str, in_pieces: bool) -> None:
    count = _read_length(source, flexible)
    _read_null(source, field.name, field.is_nullable, count, into)
    with source.block("else:"):
        item_bytes = field.item_bytes(flexible)
        source.line(f'if {count} * {item_bytes} > end - p: short("{field.name}", {count})')
        source.line(f"left -= {count}")
        source.line("if left < 0: crowded()")
        items = source.name("items")
        if field.format is not None:
            if in_pieces:
                source.line(f"{items} = []")
                with source.block(f"while {count} > {_PIECE_NUMBERS}:"):
                    source.line(f'{items} += unpack_from(">{_PIECE_NUMBERS}{field.format}", b, p)')
                    source.line(f"p += {_PIECE_NUMBERS * item_bytes}")
                    source.line(f"{count} -= {_PIECE_NUMBERS}")
                    source.line("yield")
            source.line(f'{into} = unpack_from(f">{{{count}}}{field.format}", b, p)')
            source.line(f"p += {count} * {item_bytes}")
            if in_pieces:
                source.line(f"if {items}: {into} = (*{items}, *{into})")
            return
        item = source.name("item")
        source.line(f"{items} = []")
        with source.block(f"for _ in range({count}):"):
            if field.message is not None:
                _read_message(source, field.message, item, in_pieces)
            else:
                _read_item(source, field, flexible, item)
            source.line(f"{items}.append({item})")
            if in_pieces:
                source.line("items_read += 1")
                with source.block(f"if items_read == {_PIECE_ITEMS}:"):
                    source.line("items_read = 0")
                    source.line("yield")
        source.line(f"{into} = tuple({items})")


def _read_item(source: Source, field: FieldPlan, flexible: bool, into: str) -> None:
    """One text, bytes or id."""
    if field.kafka_type == "uuid":
        source.line(f"{into} = read_id(b, p)")
        source.line("p += 16")
        return
    assert field.kafka_type in ("string", "bytes", "records"), field
    is_text = field.kafka_type == "string"
    length = _read_length(source, flexible, field.name if is_text else None)
    _read_null(source, field.name, field.is_nullable and not field.is_array, length, into)
    with source.block("else:"):
        stop = source.name("stop")
        source.line(f"{stop} = p + {length}")
        source.line(f'if {stop} > end: short("{field.name}", {length})')
        content = f"b[p:{stop}]"
        source.line(f'{into} = str({content}, "utf-8")' if is_text else f"{into} = bytes({content})")
        source.line(f"p = {stop}")


def _read_tags(source: Source, plan: MessagePlan, values: dict[str, str]) -> None:
    for field in plan.tagged:
        values[field.name] = local = source.name()
        source.line(f"{local} = {source.constant(field.default, 'default')}")
    count, tag, size, stop = (source.name(each) for each in ("n", "tag", "size", "stop"))
    source.line(f"{count}, p = read_tag_count(b, p)")
    with source.block(f"for _ in range({count}):"):
        source.line(f"{tag}, p = read_varint(b, p)")
        source.line(f"{size}, p = read_varint(b, p)")
        source.line(f"{stop} = p + {size}")
        source.line(f'if {stop} > end: short("a tagged field", {size})')
        for position, field in enumerate(plan.tagged):
            with source.block(f"{'elif' if position else 'if'} {tag} == {field.tag}:"):
                read = source.constant(_compiled_tag(field), "read")
                source.line(f"{values[field.name]} = {read}(b[p:{stop}], left)")
        source.line(f"p = {stop}")
