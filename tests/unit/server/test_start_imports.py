"""What a broker that starts does not pay for."""

import subprocess
import sys
from pathlib import Path


def test_starting_a_broker_imports_neither_an_http_server_nor_what_another_store_or_database_needs() -> None:
    slow = "{'aiohttp', 'yarl', 'alembic', 'boto3', 'psycopg', 'sqlalchemy.dialects.postgresql'}"
    code = f"import sys, tiered.server.serve; print(sorted({slow} & set(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]
    )
    assert run.stdout.strip() == "[]"
