"""The credentials that clients of the emulated AWS services present."""

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "slslab", "AWS_SECRET_ACCESS_KEY": "slslab-loopback-only"}
