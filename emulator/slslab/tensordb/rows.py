"""COMMAND's rows: flags, where keys are, and ACL categories of each command, as Redis 7.0.15 gives them."""

from slslab.tensordb.replies import Reply, Simple
from slslab.tensordb.session import Command

# Names : flags : first key, last key, step : categories, without those that follow from the flags.
ROWS = """
shutdown : admin noscript loading stale no_multi allow_busy : 0 0 0 :
time : loading stale fast : 0 0 0 :
ping : fast : 0 0 0 : connection
command : loading stale : 0 0 0 : connection
echo select : loading stale fast : 0 0 0 : connection
auth hello quit reset : noscript loading stale fast no_auth allow_busy : 0 0 0 : connection
info : loading stale : 0 0 0 : dangerous
hgetall hkeys hvals : readonly : 1 1 1 : hash
hexists hget hlen hmget : readonly fast : 1 1 1 : hash
hincrby hset hsetnx : write denyoom fast : 1 1 1 : hash
hdel : write fast : 1 1 1 : hash
scan : readonly : 0 0 0 : keyspace
dbsize : readonly fast : 0 0 0 : keyspace
exists touch : readonly fast : 1 -1 1 : keyspace
pttl ttl type : readonly fast : 1 1 1 : keyspace
del : write : 1 -1 1 : keyspace
rename : write : 1 2 1 : keyspace
unlink : write fast : 1 -1 1 : keyspace
expire expireat persist pexpire pexpireat : write fast : 1 1 1 : keyspace
keys : readonly : 0 0 0 : keyspace dangerous
flushall flushdb : write : 0 0 0 : keyspace dangerous
lindex lrange : readonly : 1 1 1 : list
llen : readonly fast : 1 1 1 : list
lrem ltrim : write : 1 1 1 : list
lset : write denyoom : 1 1 1 : list
lmove rpoplpush : write denyoom : 1 2 1 : list
lpush lpushx rpush rpushx : write denyoom fast : 1 1 1 : list
blmove brpoplpush : write denyoom noscript blocking : 1 2 1 : list
lpop rpop : write fast : 1 1 1 : list
blpop brpop : write noscript blocking : 1 -2 1 : list
eval evalsha fcall : noscript stale skip_monitor no_mandatory_keys movablekeys : 0 0 0 : scripting
eval_ro evalsha_ro fcall_ro : readonly noscript stale skip_monitor no_mandatory_keys movablekeys : 0 0 0 : scripting
smembers : readonly : 1 1 1 : set
scard sismember : readonly fast : 1 1 1 : set
sadd : write denyoom fast : 1 1 1 : set
srem : write fast : 1 1 1 : set
mget : readonly fast : 1 -1 1 : string
get strlen : readonly fast : 1 1 1 : string
mset : write denyoom : 1 -1 2 : string
psetex set setex : write denyoom : 1 1 1 : string
append decr decrby getset incr incrby incrbyfloat setnx : write denyoom fast : 1 1 1 : string
getdel : write fast : 1 1 1 : string
discard multi unwatch : noscript loading stale fast allow_busy : 0 0 0 : transaction
watch : noscript loading stale fast allow_busy : 1 -1 1 : transaction
exec : noscript loading stale skip_slowlog : 0 0 0 : transaction
ai.tensorset ai.scriptstore : write denyoom module : 1 1 1 :
ai.scriptdel : write module : 1 1 1 :
ai.tensorget ai.scriptget : readonly module : 1 1 1 :
"""
FACTS = {
    name: (flags.split(), [int(place) for place in places.split()], categories.split())
    for names, flags, places, categories in (line.split(":") for line in ROWS.strip().splitlines())
    for name in names.split()
}
# Of flags: the categories that they put a command in.
FOLLOWING = {"write": ["write"], "readonly": ["read"], "admin": ["admin", "dangerous"], "blocking": ["blocking"]}


def row(entry: Command) -> Reply:
    """Return a command's row, as it is in RESP; tips, specifications of keys and subcommands are empty."""
    flags, places, groups = FACTS.get(entry.name, ([], [0, 0, 0], []))
    categories = {*groups, "fast" if "fast" in flags else "slow"}
    if "scripting" not in groups:
        categories.update(category for flag in flags for category in FOLLOWING.get(flag, []))
    return [
        entry.name,
        entry.arity,
        frozenset(map(Simple, flags)),
        *places,
        frozenset(Simple(f"@{category}") for category in categories),
        *([], [], []),
    ]
