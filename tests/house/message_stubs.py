"""The types of Kafka's messages, for mypy alone: `make generated` writes stubs/kafka_messages.

A handler takes requests and constructors that `tiered.wire.messages` compiles when they are asked for, so mypy sees
nothing of them. Each stub has the structures of one API, with the fields of all versions that are served. A field is
required where every version requires it; what only some versions have may be left out.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tiered.server.kafka.apis import served_apis
from tiered.server.kafka.dispatch import Api
from tiered.wire import messages
from tiered.wire.schema import REQUIRED, FieldPlan, Message, MessagePlan

FOLDER = Path(__file__).resolve().parents[2] / "stubs/kafka_messages"
PRIMITIVES = {"bool": "bool", "float64": "float", "string": "str", "bytes": "bytes", "records": "bytes", "uuid": "UUID"}
"""All others are numbers."""
HEAD = """from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

"""


@dataclass(slots=True)
class Field:
    type: str
    is_nullable: bool = False
    required_in: int = 0


@dataclass(slots=True)
class Structure:
    versions: int = 0
    fields: dict[str, Field] = field(default_factory=dict)


def stubs() -> dict[str, str]:
    """The text of each file by its name. Produce and Fetch are not among them: their codecs have types of their own."""
    served = [api for api in served_apis() if api.handle is not None]
    return {"__init__.pyi": "", **{f"{messages.APIS[api.key][0]}.pyi": stub(api) for api in served}}


def stub(api: Api) -> str:
    versions = range(api.versions[0], api.versions[1] + 1)
    request = structures(messages.message_class(api.key, version, "request") for version in versions)
    reply = structures(messages.message_class(api.key, version, "response") for version in versions)
    lines = [*written(request, ""), "class Replies:"]
    lines += [f"    {line}".rstrip() for line in written(reply, "Replies.")]
    name = messages.APIS[api.key][0].title().replace("_", "")
    lines += [f"Request = {name}Request", "Reply = type[Replies]", f"Response = Replies.{name}Response"]
    return HEAD + "\n".join(lines) + "\n"


def structures(of_versions: Iterable[type[Message]]) -> dict[str, Structure]:
    """Every structure by its name."""
    found: dict[str, Structure] = {}
    for message_class in of_versions:
        for plan in within(message_class.plan).values():
            structure = found.setdefault(plan.name, Structure())
            structure.versions += 1
            for each in plan.fields:
                known = structure.fields.setdefault(each.name, Field(type_of(each)))
                known.is_nullable |= each.is_nullable or (each.kafka_type == "uuid" and not each.is_array)
                known.required_in += each.default is REQUIRED
    return found


def within(plan: MessagePlan) -> dict[str, MessagePlan]:
    plans = {plan.name: plan}
    for each in plan.fields:
        plans |= within(each.message) if each.message is not None else {}
    return plans


def type_of(plan: FieldPlan) -> str:
    one = plan.message.name if plan.message is not None else PRIMITIVES.get(str(plan.kafka_type), "int")
    return f"Sequence[{one}]" if plan.is_array else one


def written(found: dict[str, Structure], room: str) -> Iterator[str]:
    """One class a structure; `room` is where those stand that a field may name."""
    for name, structure in found.items():
        yield "@final"
        yield "@dataclass(kw_only=True)"
        yield f"class {name}:" if structure.fields else f"class {name}: ..."
        for of, each in structure.fields.items():
            inner = each.type.removeprefix("Sequence[").removesuffix("]")
            kind = each.type.replace(inner, room + inner) if inner in found else each.type
            nullable = " | None" if each.is_nullable else ""
            yield f"    {of}: {kind}{nullable}" + ("" if each.required_in == structure.versions else " = ...")
        yield ""
