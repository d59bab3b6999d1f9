"""LambdaML ScatterReduce over an object store: worker i merges chunk i (docs/protocols.md, "ScatterReduce")."""

from slslab_workers.scatterreduce.driver import ScatterReduce

architecture = ScatterReduce()
