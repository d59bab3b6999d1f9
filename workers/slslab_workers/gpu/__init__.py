"""The GPU baseline: instances that synchronise through an object store (docs/protocols.md, "GPU baseline")."""

from slslab_workers.gpu.driver import Gpu

architecture = Gpu()
