"""The account and Region of the emulated AWS services."""

ACCOUNT = "000000000000"
REGION = "us-east-1"
