"""IaaS peers: instances that add up their gradients by PyTorch's own all-reduce (docs/protocols.md, "IaaS peers")."""

from slslab_workers.gloo.driver import Gloo

architecture = Gloo()
