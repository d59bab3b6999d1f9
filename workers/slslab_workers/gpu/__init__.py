"""The GPU baseline: instances that synchronise through an object store (protocol reference, chapter 6)."""

from slslab_workers.gpu.driver import Gpu

architecture = Gpu()
