"""Whom the embedded S3 server knows: SeaweedFS's configuration for the keys of one start."""

import base64
from typing import Any

from slslab.aws.keys import ISSUER, ROLE_ARN, Keyring


def identities(keyring: Keyring) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the configuration of the S3 server's identities, and that of its Security Token Service with its role."""
    owners = [
        {
            "name": f"owner-{number}",
            "credentials": [{"accessKey": pair.key_id, "secretKey": pair.secret}],
            "actions": ["Admin"],
        }
        for number, pair in enumerate(keyring.owners)
    ]
    everything = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]}
    # As of an execution role on AWS. The tokens are made here, and so nobody assumes the role by a request.
    trust = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": ["sts:AssumeRole"]}
    service = {
        "tokenDuration": "12h",
        "maxSessionLength": "12h",
        "issuer": ISSUER,
        "signingKey": base64.b64encode(keyring.token_key).decode(),
    }
    return {"identities": owners}, {
        "sts": service,
        "policy": {"defaultEffect": "Deny", "storeType": "memory"},
        "policies": [{"name": "objects", "document": {"Version": "2012-10-17", "Statement": [everything]}}],
        "roles": [
            {
                "roleName": "function",
                "roleArn": ROLE_ARN,
                "trustPolicy": {"Version": "2012-10-17", "Statement": [trust]},
                "attachedPolicies": ["objects"],
            }
        ],
    }
