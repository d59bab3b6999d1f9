"""The stack: what the functions talk to."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Stack:
    """Addresses, credentials, and what each part really is, for instance `{"s3": "SeaweedFS 4.48"}`."""

    s3_endpoint: str
    credentials: Mapping[str, str]
    versions: Mapping[str, str]

    def client_environment(self) -> dict[str, str]:
        """The variables by which AWS's clients find the stack."""
        return {**self.credentials, "AWS_ENDPOINT_URL_S3": self.s3_endpoint}
