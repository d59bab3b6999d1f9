"""Show addresses of the stack's parts without their secrets."""

from urllib.parse import urlsplit


def without_passwords(addresses: str) -> str:
    """Return addresses, separated by spaces, without users and passwords."""
    parts = map(urlsplit, addresses.split())
    return " ".join(part._replace(netloc=part.netloc.rpartition("@")[2]).geturl() for part in parts)
