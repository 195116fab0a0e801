"""A handler's request and reply have types, so that a misspelt field is found by mypy and not by a client."""

import ast
from pathlib import Path

from mypy import api

from tests.house.message_stubs import FOLDER

ROOT = Path(__file__).resolve().parents[2]
MISSPELT = """
from kafka_messages.delete_groups import Reply, Request, Response

def handle(request: Request, reply: Reply) -> Response:
    results = [reply.DeletableGroupResult(group_id=each, eror_code=0) for each in request.groups_namez]
    return reply.DeleteGroupsResponse(throttle_time=0, results=results)
"""


def test_a_misspelt_field_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text(MISSPELT)
    config = tmp_path / "mypy.ini"
    config.write_text(f"[mypy]\nstrict = True\nmypy_path = {FOLDER.parent}\ncache_dir = {tmp_path / 'cache'}\n")
    said, _, code = api.run(["--config-file", str(config), str(tmp_path / "sample.py")])
    assert code == 1
    assert "groups_namez" in said
    assert "eror_code" in said


def test_no_handler_takes_just_anything() -> None:
    untyped = [
        f"{path.name}: {node.name}"
        for path in (ROOT / "tiered/server/kafka/api").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for argument in node.args.args
        if argument.arg in ("request", "reply", "answer") and isinstance(argument.annotation, ast.Name)
        if argument.annotation.id == "Any"
    ]
    assert not untyped, "take the types of kafka_messages.<api>, under TYPE_CHECKING, as the other files in api/ do"
