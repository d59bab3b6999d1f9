"""Policy documents decide as IAM's evaluation logic says, and what would not be enforced is refused."""

import json
import time
from typing import Any

import pytest

from slslab.aws.policies import TAG, decide, statements

OWNER, FUNCTION = "arn:aws:iam::000000000000:root", "arn:aws:sts::000000000000:assumed-role/function/f"


def policy(*given: dict[str, Any]) -> str:
    usual = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [usual | entry for entry in given]})


@pytest.mark.parametrize(
    ("given", "arn", "action", "resource", "expected"),
    [
        ({}, "", "s3:GetObject", "arn:aws:s3:::b/k", True),
        ({}, FUNCTION, "s3:getobject", "arn:aws:s3:::b/k", True),
        ({}, "", "s3:PutObject", "arn:aws:s3:::b/k", None),
        ({"Effect": "Deny", "Action": "s3:*"}, OWNER, "s3:PutObject", "arn:aws:s3:::b", False),
        ({"Action": ["s3:Get?bject", "s3:List*"]}, "", "s3:ListBucket", "arn:aws:s3:::b", True),
        ({"Resource": "arn:aws:s3:::b/*"}, "", "s3:GetObject", "arn:aws:s3:::b", None),
        ({"Resource": "arn:aws:s3:::b/a*c/*.txt"}, "", "s3:GetObject", "arn:aws:s3:::b/abbc/d/e.txt", True),
        ({"Resource": "arn:aws:s3:::b/[a]"}, "", "s3:GetObject", "arn:aws:s3:::b/a", None),
        ({"Principal": {"AWS": OWNER}}, OWNER, "s3:GetObject", "b", True),
        ({"Principal": {"AWS": "000000000000"}}, OWNER, "s3:GetObject", "b", True),
        ({"Principal": {"AWS": "000000000000"}}, FUNCTION, "s3:GetObject", "b", None),
        ({"Principal": {"AWS": [FUNCTION]}}, FUNCTION, "s3:GetObject", "b", True),
        ({"Condition": {"StringEquals": {"s3:prefix": ["a/", "p/"]}}}, "", "s3:GetObject", "b", True),
        ({"Condition": {"StringNotLike": {"s3:Prefix": "p*"}}}, "", "s3:GetObject", "b", None),
        ({"Condition": {"StringEquals": {"s3:delimiter": "/"}}}, "", "s3:GetObject", "b", None),
        ({"Condition": {"StringEquals": {"s3:existingobjecttag/Level": "1"}}}, "", "s3:GetObject", "b", True),
        ({"Condition": {"StringEquals": {"s3:ExistingObjectTag/level": "1"}}}, "", "s3:GetObject", "b", None),
        ({"Condition": {"ArnLike": {"aws:PrincipalArn": "*/f"}}}, FUNCTION, "s3:GetObject", "b", True),
        ({"Effect": "Deny", "Condition": {"Bool": {"aws:SecureTransport": False}}}, OWNER, "s3:GetObject", "b", None),
    ],
)
def test_decisions(given: dict[str, Any], arn: str, action: str, resource: str, expected: bool | None) -> None:
    found = statements(policy(given), principals=True)
    assert decide(found, arn, action, resource, {"s3:prefix": "p/", f"{TAG}Level": "1"}) is expected


def test_a_denial_beats_an_allowance_in_any_order() -> None:
    for order in ((0, 1), (1, 0)):
        entries = [{}, {"Effect": "Deny", "Resource": "b/secret"}]
        found = statements(policy(*(entries[place] for place in order)), principals=True)
        assert decide(found, "", "s3:GetObject", "b/secret", {}) is False
        assert decide(found, "", "s3:GetObject", "b/k", {}) is True


@pytest.mark.parametrize(
    ("condition", "public"),
    [
        ({}, True),
        ({"StringEquals": {"s3:prefix": "a/"}}, True),
        ({"Bool": {"aws:SecureTransport": "true"}}, True),
        ({"ArnLike": {"aws:PrincipalArn": "arn:aws:sts::000000000000:*"}}, True),
        ({"ArnNotEquals": {"aws:PrincipalArn": FUNCTION}}, True),
        ({"ArnEquals": {"aws:PrincipalArn": FUNCTION}}, False),
    ],
)
def test_what_is_public(condition: dict[str, Any], public: bool) -> None:
    (statement,) = statements(policy({"Condition": condition}), principals=True)
    assert statement.is_public is public


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"Principal": {"AWS": "arn:aws:iam::000000000000:role/any"}}, NotImplementedError),
        ({"Principal": {"Service": "s3.amazonaws.com"}}, NotImplementedError),
        ({"Effect": "Deny", "NotPrincipal": "*"}, NotImplementedError),
        ({"NotPrincipal": "*"}, ValueError),
        ({"NotResource": "*"}, NotImplementedError),
        ({"Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}, NotImplementedError),
        ({"Condition": {"StringEquals": {"s3:RequestObjectTag/a": "1"}}}, NotImplementedError),
        ({"Condition": {"StringEqualsIfExists": {"s3:prefix": "a"}}}, NotImplementedError),
        ({"Effect": "allow"}, ValueError),
        ({"Action": []}, ValueError),
        ({"Action": [1]}, ValueError),
        ({"Resource": ""}, ValueError),
        ({"Condition": "no"}, ValueError),
    ],
)
def test_what_would_not_be_enforced_is_refused(given: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        statements(policy(given), principals=True)


@pytest.mark.parametrize("text", ["", "[]", "{}", "no", '{"Statement": []}', '{"Statement": 1}', "[" * 100_000])
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        statements(text, principals=True)


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    found = statements(policy({"Resource": "*a" * 500 + "b"}), principals=True)
    began = time.process_time()
    assert decide(found, "", "s3:GetObject", "a" * 1024, {}) is None
    assert time.process_time() - began < 2
