"""Apply a bucket's rules for pages of other web sites.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/ManageCorsUsing.html
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slslab.object_store.errors import failure

METHODS = ("GET", "PUT", "POST", "DELETE", "HEAD")
# assumed: more rules than fit into 64 KB, S3's limit (documented: API_PutBucketCors.html), and more headers than a page
# sends.
MOST_ENTRIES, MOST_ASKED = 2000, 100
Rules = Sequence[Mapping[str, Any]]


def check(rules: Rules) -> None:
    """Raise MalformedXML or InvalidRequest for rules that S3 refuses."""
    entries = sum(len(entry) for rule in rules for entry in rule.values() if isinstance(entry, list))
    if not 0 < len(rules) <= 100 or entries > MOST_ENTRIES:
        raise failure("MalformedXML")
    for rule in rules:
        for method in rule["AllowedMethods"]:
            if method not in METHODS:
                raise failure(
                    "InvalidRequest", f"Found unsupported HTTP method in CORS config. Unsupported method is {method}"
                )
        for origin in [*rule["AllowedOrigins"], *rule.get("AllowedHeaders", [])]:
            if origin.count("*") > 1:
                raise failure("InvalidRequest", f'AllowedOrigin "{origin}" can not have more than one wildcard.')


def headers(rules: Rules, origin: str, method: str, asked: Iterable[str] = ()) -> dict[str, str] | None:
    """Return the headers that let a page of this origin read an answer; None if no rule allows it.

    `asked` are the headers that the page wants to send.
    """
    names = [name.strip().lower() for name in asked if name.strip()]
    for rule in rules if len(names) <= MOST_ASKED else ():
        allowed = [entry.lower() for entry in rule.get("AllowedHeaders", [])]
        if (
            method in rule["AllowedMethods"]
            and (pattern := next((entry for entry in rule["AllowedOrigins"] if _matches(entry, origin)), None))
            and all(any(_matches(entry, name) for entry in allowed) for name in names)
        ):
            found = {
                "access-control-allow-origin": "*" if pattern == "*" else origin,
                "access-control-allow-methods": ", ".join(rule["AllowedMethods"]),
                "access-control-allow-credentials": "" if pattern == "*" else "true",
                "access-control-allow-headers": ", ".join(names),
                "access-control-expose-headers": ", ".join(rule.get("ExposeHeaders", [])),
                "access-control-max-age": str(rule.get("MaxAgeSeconds", "")),
                "vary": "Origin, Access-Control-Request-Headers, Access-Control-Request-Method",
            }
            return {name: value for name, value in found.items() if value}
    return None


def _matches(pattern: str, text: str) -> bool:
    first, star, last = pattern.partition("*")
    if not star:
        return pattern == text
    return len(text) >= len(first) + len(last) and text.startswith(first) and text.endswith(last)
