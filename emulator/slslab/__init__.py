"""slslab: what runs the functions of serverless training, and tells what they cost."""

__version__ = "0.1.0"
