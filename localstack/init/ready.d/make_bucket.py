"""Makes the bucket before LocalStack says that it is ready. LocalStack runs this file itself, in a container or not.

`TIERED_BUCKET` names the bucket. One that is there stays as it is.
"""

import os

import boto3

PORT = (os.environ.get("GATEWAY_LISTEN") or ":4566").split(",")[0].rsplit(":", 1)[1]
BUCKET = os.environ.get("TIERED_BUCKET") or "tiered"

s3 = boto3.client(
    "s3",
    endpoint_url=f"http://127.0.0.1:{PORT}",
    region_name="us-east-1",
    aws_access_key_id="test",
    aws_secret_access_key="test",
)
# In us-east-1 making one's own bucket again is no error, on LocalStack as on AWS.
s3.create_bucket(Bucket=BUCKET)
print(f"the bucket {BUCKET} is there", flush=True)
