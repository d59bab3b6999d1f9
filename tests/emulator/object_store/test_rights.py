"""Rights are decided by keys and policies together."""

import json

import pytest

from slslab.aws.errors import ServiceError
from slslab.aws.keys import Keyring
from slslab.object_store.call import check_rights
from slslab.object_store.storage import Bucket


def test_conditions_of_functions_policies_ask_the_request() -> None:
    statement = {
        "Effect": "Deny",
        "Action": "s3:ListBucket",
        "Resource": "*",
        "Condition": {"StringNotLike": {"s3:prefix": "own/*"}},
    }
    keys = Keyring(function_policy=json.dumps({"Statement": statement}))
    pair = keys.function("f")
    principal = keys.find(pair.key_id, pair.token)[1]
    bucket = Bucket("b", "us-east-1")
    check_rights(principal, "s3:ListBucket", bucket, "b", "", {"s3:prefix": "own/1"})
    with pytest.raises(ServiceError, match="not authorized"):
        check_rights(principal, "s3:ListBucket", bucket, "b", "", {"s3:prefix": "other/1"})
