"""Serve S3 from this host: names and versions in memory, bodies in files, requests and answers by botocore's model."""

SERVER = "slslab S3"
