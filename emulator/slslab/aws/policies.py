"""Evaluate IAM policy documents; refuse a policy that contains anything not enforced here.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import Any

from slslab.aws.arns import ACCOUNT

ELEMENTS = frozenset({"Sid", "Effect", "Principal", "Action", "Resource", "Condition"})
OWNERS = (ACCOUNT, f"arn:aws:iam::{ACCOUNT}:root")
FUNCTION = re.compile(rf"arn:aws:sts::{ACCOUNT}:assumed-role/function/[^*?]+")
# The values in a request that a condition may test: texts, and whether it used TLS.
HEADERS = ("acl", "copy-source", "metadata-directive", "server-side-encryption", "storage-class")
KEYS = frozenset({"s3:prefix", "s3:delimiter", "aws:principalarn", *(f"s3:x-amz-{name}" for name in HEADERS)})
# Followed by a tag's key, in its own case.
TAG = "s3:existingobjecttag/"
SECURE = "aws:securetransport"
# Operators: whether they compare patterns, and whether they are negated.
TEXTS = {
    "StringEquals": (False, False),
    "StringNotEquals": (False, True),
    "StringLike": (True, False),
    "StringNotLike": (True, True),
    "ArnEquals": (True, False),
    "ArnLike": (True, False),
    "ArnNotEquals": (True, True),
    "ArnNotLike": (True, True),
}


def matches(pattern: str, text: str) -> bool:
    """Return whether a pattern with the wildcards * and ? matches a text.

    It takes time proportional to the product of both lengths at most.
    """
    return _expression(pattern).match(text) is not None


@lru_cache(1024)
def _expression(pattern: str) -> re.Pattern[str]:
    # Brackets aren't wildcards in IAM.
    return re.compile(translate(pattern.replace("[", "[[]")))


@dataclass(frozen=True)
class Statement:
    """One statement: whom it allows or denies what, by patterns; `conditions` are operator, key and patterns."""

    allows: bool
    principals: tuple[str, ...]
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: tuple[tuple[str, str, tuple[str, ...]], ...] = ()

    @property
    def is_public(self) -> bool:
        """Whether it allows everybody something (documented: access-control-block-public-access.html)."""
        return self.allows and "*" in self.principals and not any(_names_principals(*each) for each in self.conditions)

    def applies(self, arn: str, action: str, resource: str, context: Mapping[str, str]) -> bool:
        """Return whether it applies to this request; `arn` is empty for an unknown caller."""
        return (
            any(principal in ("*", arn) or (arn in OWNERS and principal in OWNERS) for principal in self.principals)
            and any(matches(pattern, action.lower()) for pattern in self.actions)
            and any(matches(pattern, resource) for pattern in self.resources)
            and all(_is_met(*condition, {**context, "aws:principalarn": arn}) for condition in self.conditions)
        )


def decide(
    policy: Iterable[Statement], arn: str, action: str, resource: str, context: Mapping[str, str]
) -> bool | None:
    """Return whether a policy allows (True) or denies (False) a request, or None if it does neither."""
    found = {statement.allows for statement in policy if statement.applies(arn, action, resource, context)}
    return False if False in found else True if found else None


def statements(text: str, *, principals: bool) -> tuple[Statement, ...]:
    """Return the statements of a policy document; with `principals`, each must name whom it applies to.

    Raises ValueError for an invalid policy, and NotImplementedError for a part that can't be enforced.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("Policies must be valid JSON and the first byte must be '{'") from error
    if not isinstance(document, dict) or "Statement" not in document:
        raise ValueError("Missing required field Statement")
    given = document["Statement"]
    found = tuple(_statement(entry, principals) for entry in (given if isinstance(given, list) else [given]))
    if not found:
        raise ValueError("Could not parse the policy: Statement is empty!")
    return found


def _statement(entry: Any, principals: bool) -> Statement:
    if not isinstance(entry, dict) or entry.get("Effect") not in ("Allow", "Deny"):
        raise ValueError("Invalid effect: a statement needs Effect, Allow or Deny")
    if "NotPrincipal" in entry and entry["Effect"] == "Allow":
        # documented: reference_policies_elements_notprincipal.html.
        raise ValueError("Allow with NotPrincipal is not supported")
    if unknown := sorted(entry.keys() - ELEMENTS):
        raise NotImplementedError(f"slslab does not enforce {', '.join(unknown)[:200]} in a policy")
    if principals != ("Principal" in entry):
        raise ValueError("Missing required field Principal" if principals else "It must not name a Principal")
    actions = _texts(entry.get("Action"), "Action")
    return Statement(
        entry["Effect"] == "Allow",
        _principals(entry["Principal"]) if principals else ("*",),
        tuple(action.lower() for action in actions),
        _texts(entry.get("Resource"), "Resource"),
        tuple(_conditions(entry.get("Condition", {}))),
    )


def _principals(value: Any) -> tuple[str, ...]:
    if value != "*" and not (isinstance(value, dict) and value.keys() == {"AWS"}):
        raise NotImplementedError('slslab knows only the principals "*" and {"AWS": ...}')
    found = ("*",) if value == "*" else _texts(value["AWS"], "Principal")
    for name in found:
        if name != "*" and name not in OWNERS and not FUNCTION.fullmatch(name):
            raise NotImplementedError(
                f"slslab knows no principal {name[:200]}: name *, {OWNERS[1]} or "
                f"arn:aws:sts::{ACCOUNT}:assumed-role/function/FUNCTION"
            )
    return found


def _texts(value: Any, name: str) -> tuple[str, ...]:
    found = value if isinstance(value, list) else [value]
    if not found or not all(isinstance(entry, str) and entry for entry in found):
        raise ValueError(f"Missing required field {name}: a text, or a list of texts")
    return tuple(found)


def _conditions(value: Any) -> Iterable[tuple[str, str, tuple[str, ...]]]:
    if not isinstance(value, dict):
        raise ValueError("Condition must be an object")
    for operator, keys in value.items():
        if not isinstance(keys, dict):
            raise ValueError("Condition must be an object of objects")
        for key, given in keys.items():
            name = TAG + key[len(TAG) :] if key.lower().startswith(TAG) else key.lower()
            is_text = name in KEYS or name.startswith(TAG)
            if not (is_text if operator in TEXTS else (operator, name) == ("Bool", SECURE)):
                raise NotImplementedError(f"slslab does not enforce the condition {operator} of {key}"[:300])
            texts = given if isinstance(given, list) else [given]
            texts = [str(text).lower() if isinstance(text, bool) else text for text in texts]
            yield operator, name, _texts(texts, key)


def _names_principals(operator: str, key: str, values: tuple[str, ...]) -> bool:
    named = not any(set(value) & set("*?") for value in values)
    return key == "aws:principalarn" and not TEXTS[operator][1] and named


def _is_met(operator: str, key: str, values: tuple[str, ...], context: Mapping[str, str]) -> bool:
    if key == SECURE:
        # The endpoint has no TLS; policies that require it would lock the owner out.
        return "true" in values
    pattern, negated = TEXTS[operator]
    text = context.get(key)
    if text is None:
        return negated
    return negated != any(matches(value, text) if pattern else value == text for value in values)
