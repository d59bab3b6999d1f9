"""LambdaML AllReduce over an object store: rank 0 merges everybody's gradient (protocol reference, chapter 3)."""

from slslab_workers.allreduce.driver import AllReduce

architecture = AllReduce()
