"""The version of slslab."""

__version__ = "0.1.0"
