"""boto3 clients of this host's services."""

from slslab.aws.arns import REGION
from slslab.aws.clients import aws_client
from slslab.aws.keys import Pair

PAIR = Pair("key", "secret")


def test_a_client_never_repeats_a_call_and_waits_for_long_ones() -> None:
    client = aws_client("lambda", "http://127.0.0.1:1", PAIR, max_pool_connections=3)
    config = client.meta.config
    assert (client.meta.endpoint_url, client.meta.region_name) == ("http://127.0.0.1:1", REGION)
    assert (config.retries["total_max_attempts"], config.read_timeout, config.max_pool_connections) == (1, 3600, 3)
    client.close()


def test_buckets_are_in_the_path() -> None:
    client = aws_client("s3", "http://127.0.0.1:1", PAIR)
    assert client.meta.config.s3["addressing_style"] == "path"
    client.close()
