"""Run a tensor database with RedisAI's protocol, for hosts where RedisAI's image can't run.

One process serves many peers, each with its own port and keyspace: `python -m slslab.tensordb --help`. docs/services.md
lists its commands and its differences from RedisAI.
"""
