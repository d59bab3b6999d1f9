"""IaaS peers: instances that add up their gradients with PyTorch's all-reduce (docs/protocols.md, "IaaS peers")."""

from slslab_workers.gloo.driver import Gloo

architecture = Gloo()
