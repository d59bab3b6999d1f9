"""One endpoint for all emulated AWS services: the value of `AWS_ENDPOINT_URL`."""
