"""Create buckets in an S3 server with MinIO's client and check them: `python -m slslab.stack.buckets NAME ...`.

AWS's own variables name the server and its credentials: AWS_ENDPOINT_URL_S3, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY.
To check a bucket, an object is put, read and deleted. These buckets are for users' data; runs create their own.
"""

import io
import os
import secrets
import sys
from collections.abc import Sequence
from contextlib import closing
from urllib.parse import urlsplit

import minio
import urllib3
from minio.error import S3Error

from slslab.aws.arns import REGION
from slslab.errors import HostError, RequestError, SlslabError

ALREADY_THERE = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")


def client() -> minio.Minio:
    """Return MinIO's client for the server in the variables; RequestError if one is missing."""
    try:
        endpoint = urlsplit(os.environ["AWS_ENDPOINT_URL_S3"])
        key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    except KeyError as missing:
        raise RequestError(f"The variable {missing.args[0]} is not set.", "set it as for the aws CLI.") from missing
    return minio.Minio(endpoint.netloc, key, secret, secure=endpoint.scheme == "https", region=REGION)


def make(server: minio.Minio, bucket: str) -> None:
    """Create a bucket unless it exists, and put, read and delete an object in it.

    Raises HostError if the server refuses or returns other bytes, RequestError for an invalid name.
    """
    try:
        try:
            server.make_bucket(bucket)
        except S3Error as error:
            if error.code not in ALREADY_THERE:
                raise
        key, body = f"slslab-check-{secrets.token_hex(8)}", secrets.token_bytes(64)
        server.put_object(bucket, key, io.BytesIO(body), len(body))
        with closing(server.get_object(bucket, key)) as answer:
            read = answer.read()
        server.remove_object(bucket, key)
    except ValueError as error:
        raise RequestError(
            f"{bucket!r} cannot be a bucket: {error}.", "use 3 to 63 lower-case letters, digits and hyphens."
        ) from error
    except (S3Error, urllib3.exceptions.HTTPError) as error:
        raise HostError(f"The bucket {bucket} cannot be used: {error}.", "see the S3 server's log.") from error
    if read != body:
        raise HostError(f"The bucket {bucket} returned {len(read)} other bytes.", "see the S3 server's log.")


def main(buckets: Sequence[str]) -> int:
    """Create and check each bucket."""
    try:
        server = client()
        for bucket in buckets:
            make(server, bucket)
            print(f"bucket {bucket}: ready", flush=True)
    except SlslabError as error:
        print(f"{error.message}\nHint: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
