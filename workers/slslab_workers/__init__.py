"""The workers of serverless training: ordinary AWS Lambda handlers. Never imports slslab."""

__version__ = "0.2.0"
