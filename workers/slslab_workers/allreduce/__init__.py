"""LambdaML AllReduce over an object store: rank 0 merges all gradients (docs/protocols.md, "AllReduce")."""

from slslab_workers.allreduce.driver import AllReduce

architecture = AllReduce()
