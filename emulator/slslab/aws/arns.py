"""Build ARNs with the account and Region of the emulated AWS services."""

ACCOUNT = "000000000000"
REGION = "us-east-1"


def function_arn(name: str, qualifier: str | None = None) -> str:
    """Return the ARN of a function, or of one of its versions or aliases."""
    return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}" + (f":{qualifier}" if qualifier else "")
