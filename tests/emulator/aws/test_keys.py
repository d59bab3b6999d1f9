"""The keys of one start: their owner, and what they allow."""

import base64

import pytest

from slslab.aws.errors import ServiceError
from slslab.aws.keys import Keyring, Pair
from slslab.errors import RequestError


def test_every_start_has_keys_of_its_own() -> None:
    first, second = Keyring(), Keyring()
    for ring, other in ((first, second), (second, first)):
        assert ring.find(ring.owner.key_id, "")[0] == ring.owner
        for pair in (other.owner, other.service, other.function("f")):
            with pytest.raises(ServiceError, match=f"slslab knows no key {pair.key_id}"):
                ring.find(pair.key_id, pair.token)


def test_another_process_can_have_the_same() -> None:
    ring = Keyring(others=[Pair("test", "test")])
    same = Keyring.from_text(ring.text())
    for pair in (*ring.owners, ring.service, ring.function("f")):
        assert same.find(pair.key_id, pair.token)[0] == pair
    assert "secret" not in repr(Pair("key", "secret", "secret token"))


def test_the_owner_may_do_everything_a_function_and_a_service_little() -> None:
    ring = Keyring(others=[Pair("test", "test")])
    for pair in ring.owners:
        ring.find(pair.key_id, "")[1].require("lambda:DeleteFunction", "*")
    function, service = ring.function("f"), ring.service
    for pair in (function, service):
        principal = ring.find(pair.key_id, pair.token)[1]
        principal.require("lambda:InvokeFunction", "*")
        with pytest.raises(ServiceError) as denied:
            principal.require("lambda:GetFunction", "arn:of:it")
        assert (denied.value.status, denied.value.error_type) == (403, "AccessDeniedException")
        assert f"User: {principal.arn} is not authorized to perform: lambda:GetFunction on resource: arn:of:it" in str(
            denied.value
        )
    assert ring.find(function.key_id, function.token)[1].arn.endswith(":assumed-role/function/f")


def test_a_functions_pair_needs_its_token_and_a_token_its_pair() -> None:
    ring = Keyring()
    mine, others = ring.function("f"), ring.function("g")
    assert len({mine, others, ring.function("f")}) == 2
    name, signature = mine.token.split(".")
    for token in (
        "",
        others.token,
        "token",
        f"{base64.urlsafe_b64encode(b'[' * 30_000).decode()}.b",
        "4Z.b",
        "/w==.b",
        "\xe9.\xe9",
        name,
        f"{name}.",
        f"{name}.{others.token.split('.')[1]}",
        f"{others.token.split('.')[0]}.{signature}",
    ):
        with pytest.raises(ServiceError, match="slslab knows no key ASIA"):
            ring.find(mine.key_id, token)
    with pytest.raises(ServiceError, match="with this session token: use the keys from `slslab env`"):
        ring.find(ring.owner.key_id, mine.token)


def test_without_temporary_pairs_all_have_the_owners() -> None:
    ring = Keyring(Pair("key", "secret"), temporary=False)
    assert ring.function("f") == ring.service == ring.owner


@pytest.mark.parametrize("text", ["", "test", "test:", ":test", "a b:c", "a/b:c", "a,b:c", "\xe9:c"])
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="and its secret can't be used as keys"):
        Pair.parse(text)


def test_a_secret_may_have_any_character() -> None:
    assert Pair.parse("AKIA_1:a/b+c:d=") == Pair("AKIA_1", "a/b+c:d=")


def test_variables_hold_a_pair_or_none() -> None:
    temporary = Pair("key", "secret", "token")
    assert Pair.of(temporary.variables()) == temporary
    assert Pair.of({"AWS_ACCESS_KEY_ID": "key"}) is None
