"""The made-up credentials of tests: what holds them can make clients."""

import os

from tiered.testing.moto_s3 import ENVIRON, aws_environment, s3_client


def test_a_client_can_be_made_while_the_environment_is_held() -> None:
    with aws_environment():
        client = s3_client("http://127.0.0.1:1")
        assert os.environ["AWS_ACCESS_KEY_ID"] == ENVIRON["AWS_ACCESS_KEY_ID"]
    client.close()
