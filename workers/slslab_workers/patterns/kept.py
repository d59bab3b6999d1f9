"""The bytes that a channel's server keeps at once, by the keys of a pattern's signals and who removes them.

Only servers that could run out of memory count: Memcached, Redis and tensor databases. A parameter server adds up what
it gets, so it keeps one vector, and a queue's messages are small.
"""

from collections import defaultdict

from slslab_workers.patterns import Kept, Pattern, Signal

CACHES, TENSOR = ("memcached", "redis"), "tensor"


def kept(pattern: Pattern) -> dict[str, Kept]:
    """Return what one server of each channel keeps; nothing for messages of an unknown size."""
    removed = {signal.name: signal for role in pattern.roles for one in role.activities() for signal in one.removes}
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    signals: dict[tuple[str, str], Signal] = {}
    for role in pattern.roles:
        own: dict[tuple[str, str], int] = {}
        for activity in role.activities():
            for signal in activity.makes:
                name = activity.op.partition(".")[0], signal.name
                if signal.key and name[0] in CACHES and activity.bytes:
                    # A role's steps repeat their activities.
                    own[name], signals[name] = activity.bytes, signal
        for name, size in own.items():
            # Without a maker in the key, messages overwrite each other.
            apart = "{maker}" in signals[name].key
            sizes[name] = sizes[name] + size * len(role.ranks) if apart else max(sizes[name], size)
    found = {TENSOR: pattern.tensors} if pattern.tensors.most else {}
    for name, size in sizes.items():
        channel, key = name[0], signals[name].key
        if name[1] in removed:
            # The messages of a step that a later one removes are there when the later one's are made.
            least, most = (1, 2) if removed[name[1]].ahead else (0, 1)
        else:
            rounds = pattern.workload.steps if "{step}" in key else pattern.workload.epochs if "{epoch}" in key else 1
            least, most = 1, rounds
        before = found.get(channel, Kept())
        found[channel] = Kept(before.least + least * size, before.most + most * size)
    return found
