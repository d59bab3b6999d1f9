"""tensordb: a tensor database that speaks RedisAI's protocol, for hosts where RedisAI's image cannot run.

One process serves many peers, each with a port and a keyspace of its own: `python -m slslab.tensordb --help`.
docs/services.md lists its commands and its differences from RedisAI.
"""
