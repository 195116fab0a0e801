"""As much of AWS's command as a broker's machine asks for, against the endpoint of AWS_ENDPOINT_URL.

`get-secret-value` and `s3 cp` ask moto; metrics are appended to a file. Whatever else is asked is an error, as it would
be for a command that does not exist.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import boto3


def main(argv: list[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="+")
    for name in ("--region", "--secret-id", "--query", "--output", "--namespace", "--metric-data"):
        parser.add_argument(name)
    parser.add_argument("--only-show-errors", action="store_true")
    given = parser.parse_intermixed_args(argv)
    session: Any = boto3.session.Session(region_name=given.region or os.environ["AWS_REGION"])
    match given.words:
        case ["secretsmanager", "get-secret-value"]:
            answer = session.client("secretsmanager").get_secret_value(SecretId=given.secret_id)
            print(answer["SecretString"])
        case ["s3", "cp", source, target]:
            bucket, _, key = source.removeprefix("s3://").partition("/")
            session.client("s3").download_file(bucket, key, target)
        case ["cloudwatch", "put-metric-data"]:
            (Path(os.environ["MACHINE"]) / "metrics").write_text(f"{given.namespace} {given.metric_data}")
        case _:
            print(f"little_aws: nobody has written {given.words}", file=sys.stderr)
            return 252
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
