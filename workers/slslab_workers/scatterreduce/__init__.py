"""LambdaML ScatterReduce over an object store: worker i merges chunk i (protocol reference, chapter 4)."""

from slslab_workers.scatterreduce.driver import ScatterReduce

architecture = ScatterReduce()
