"""The embedded S3 server: names and versions in memory, bodies in files, requests and answers by botocore's model."""

SERVER = "slslab S3"
