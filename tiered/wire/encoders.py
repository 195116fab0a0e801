"""Encoders, one for each message class: straight-line functions compiled from its plan at the first use.

Owns how values become bytes. Neighbouring fields of fixed size go out with one call of struct. Must never
send null where the protocol has none: a None there raises, as any value out of its range does.
"""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from tiered.wire.primitives import error_message_bytes, string_bytes, tagged_field, varint
from tiered.wire.schema import FieldPlan, Message, MessagePlan
from tiered.wire.source import Source

Encoder = Callable[[Any], bytearray]

_NO_ID = UUID(int=0).bytes


def encode(message: Message) -> bytes:
    """The body of `message`. Raises struct.error, TypeError or ValueError for values that the field cannot carry."""
    message_class = type(message)
    encoder = _encoders.get(message_class)
    if encoder is None:
        encoder = _encoders[message_class] = _compiled(message_class.plan)
    return bytes(encoder(message))


def encode_in_pieces(message: Message, out: bytearray) -> Iterator[None]:
    """As `encode`, added to `out` piece by piece: a piece is an item of the outer two levels of arrays."""
    message_class = type(message)
    encoder = _piecewise.get(message_class)
    if encoder is None:
        encoder = _piecewise[message_class] = _compiled_in_pieces(message_class.plan)
    return encoder(message, out)


_encoders: dict[type[Message], Encoder] = {}
_piecewise: dict[type[Message], Callable[[Any, bytearray], Iterator[None]]] = {}
_LEVELS_IN_PIECES = 2


def _compiled(plan: MessagePlan) -> Encoder:
    source = Source()
    with source.block("def encode(message):"):
        source.line("out = bytearray()")
        _write_message(source, plan, "message", "out")
        source.line("return out")
    encode_one: Encoder = _build(source)
    return encode_one


def _compiled_in_pieces(plan: MessagePlan) -> Callable[[Any, bytearray], Iterator[None]]:
    source = Source()
    with source.block("def encode(message, out):"):
        _write_message(source, plan, "message", "out", pauses=_LEVELS_IN_PIECES)
        source.line("yield")
    encode_one: Callable[[Any, bytearray], Iterator[None]] = _build(source)
    return encode_one


def _build(source: Source) -> Any:
    return source.build(
        "encode",
        varint=varint,
        string_bytes=string_bytes,
        error_message_bytes=error_message_bytes,
        tagged_field=tagged_field,
    )


def _write_message(source: Source, plan: MessagePlan, value: str, out: str, pauses: int = 0) -> None:
    run: list[FieldPlan] = []
    for field in plan.untagged:
        if field.format is not None and not field.is_array:
            run.append(field)
            continue
        _write_run(source, run, value, out)
        _write_field(source, field, plan.flexible, f"{value}.{field.name}", out, pauses)
    _write_run(source, run, value, out)
    if plan.tagged:
        _write_tags(source, plan, value, out)
    elif plan.flexible:
        source.line(f"{out}.append(0)")


def _write_run(source: Source, run: list[FieldPlan], value: str, out: str) -> None:
    """Neighbours of fixed size, with one call."""
    if run:
        layout = "".join(field.format or "" for field in run)
        values = ", ".join(f"{value}.{field.name}" for field in run)
        source.line(f"{out} += {source.packer(layout)}({values})")
        run.clear()


def _write_field(source: Source, field: FieldPlan, flexible: bool, value: str, out: str, pauses: int = 0) -> None:
    """One field that is no part of a run: arrays, text, bytes, ids and structures."""
    local = source.name()
    source.line(f"{local} = {value}")
    if field.is_array:
        _write_array(source, field, flexible, local, out, pauses)
    elif field.message is not None:
        if not field.is_nullable or field.tag is not None:
            _write_message(source, field.message, local, out)
            return
        with source.block(f"if {local} is None:"):
            source.line(f"{out}.append(255)")
        with source.block("else:"):
            source.line(f"{out}.append(1)")
            _write_message(source, field.message, local, out)
    else:
        _write_item(source, field, flexible, local, out)


def _write_array(source: Source, field: FieldPlan, flexible: bool, local: str, out: str, pauses: int) -> None:
    if not field.is_nullable:
        _write_items(source, field, flexible, local, out, pauses)
        return
    with source.block(f"if {local} is None:"):
        source.line(f"{out}.append(0)" if flexible else f'{out} += b"\\xff\\xff\\xff\\xff"')
    with source.block("else:"):
        _write_items(source, field, flexible, local, out, pauses)


def _write_items(source: Source, field: FieldPlan, flexible: bool, local: str, out: str, pauses: int) -> None:
    count = source.name("n")
    source.line(f"{count} = len({local})")
    _write_length(source, flexible, count, out)
    item = source.name("item")
    if field.format is not None:
        pack = source.packer(field.format)
        with source.block(f"for {item} in {local}:"):
            source.line(f"{out} += {pack}({item})")
        return
    with source.block(f"for {item} in {local}:"):
        if field.message is not None:
            _write_message(source, field.message, item, out, max(0, pauses - 1))
            if pauses:
                source.line("yield")
        else:
            _write_item(source, field, flexible, item, out)


def _write_length(source: Source, flexible: bool, count: str, out: str) -> None:
    if flexible:
        with source.block(f"if {count} < 127:"):
            source.line(f"{out}.append({count} + 1)")
        with source.block("else:"):
            source.line(f"{out} += varint({count} + 1)")
    else:
        source.line(f"{out} += {source.packer('i')}({count})")


def _write_item(source: Source, field: FieldPlan, flexible: bool, local: str, out: str) -> None:
    """One text, bytes, id, or number of fixed size outside a run."""
    nullable = field.is_nullable and not field.is_array
    match field.kafka_type:
        case "uuid":
            source.line(f"{out} += {source.constant(_NO_ID)} if {local} is None else {local}.bytes")
        case "string":
            if not nullable:
                with source.block(f"if {local} is None:"):
                    source.line(f'raise TypeError("{field.name} must not be null")')
            written_by = "error_message_bytes" if field.name == "error_message" else "string_bytes"
            source.line(f"{out} += {written_by}({local}, {flexible})")
        case "bytes" | "records":
            if nullable:
                with source.block(f"if {local} is None:"):
                    source.line(f"{out}.append(0)" if flexible else f'{out} += b"\\xff\\xff\\xff\\xff"')
                with source.block("else:"):
                    _write_bytes(source, flexible, local, out)
            else:
                _write_bytes(source, flexible, local, out)
        case _:
            assert field.format is not None, field
            source.line(f"{out} += {source.packer(field.format)}({local})")


def _write_bytes(source: Source, flexible: bool, local: str, out: str) -> None:
    count = source.name("n")
    source.line(f"{count} = len({local})")
    _write_length(source, flexible, count, out)
    source.line(f"{out} += {local}")


def _write_tags(source: Source, plan: MessagePlan, value: str, out: str) -> None:
    """Tagged fields go out in the order of their tags, and only where they differ from their defaults."""
    tags = source.name("tags")
    source.line(f"{tags} = []")
    for field in plan.tagged:
        default = source.constant(field.default, "default")
        # An empty list is as good as the empty tuple that kio has for a default.
        absent = f"not {value}.{field.name}" if field.default == () else f"{value}.{field.name} == {default}"
        with source.block(f"if not ({absent}):"):
            content = source.name("content")
            source.line(f"{content} = bytearray()")
            if field.format is not None and not field.is_array:
                source.line(f"{content} += {source.packer(field.format)}({value}.{field.name})")
            else:
                _write_field(source, field, plan.flexible, f"{value}.{field.name}", content)
            source.line(f"{tags}.append(tagged_field({field.tag}, {content}))")
    with source.block(f"if {tags}:"):
        source.line(f"{out} += varint(len({tags}))")
        source.line(f'{out} += b"".join({tags})')
    with source.block("else:"):
        source.line(f"{out}.append(0)")
