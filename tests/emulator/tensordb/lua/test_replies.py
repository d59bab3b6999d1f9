"""Scripts of users' kinds, and single statements, get redis-server's replies."""

import json
from collections.abc import Callable
from itertools import groupby

import pytest
from tests.emulator.tensordb.lua.recorded import REPLIES, SCRIPTS, replies
from tests.emulator.tensordb.plain_redis import PROGRAM, plain_redis

from slslab.tensordb.server import Options

pytestmark = pytest.mark.server


def test_scripts_get_the_replies_of_redis_server(peer: Callable[[Options], str]) -> None:
    recorded = json.loads(REPLIES.read_text())
    assert {group for group, *_ in recorded} == {*SCRIPTS, "statements", "json", "resp3", "commands"}
    found = replies(peer(Options()))
    assert len(found) == len(recorded)
    for group, entries in groupby(zip(found, recorded, strict=True), lambda pair: pair[0][0]):
        answered, expected = zip(*entries, strict=True)
        assert list(answered) == list(expected), group


@pytest.mark.skipif(PROGRAM is None, reason="no redis-server is installed (tests/machines/redis/install)")
def test_the_recorded_replies_are_those_of_this_hosts_redis_server() -> None:
    with plain_redis() as url:
        assert replies(url) == json.loads(REPLIES.read_text())
