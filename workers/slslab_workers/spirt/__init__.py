"""SPIRT: peers with a tensor database and a state machine each (docs/protocols.md, "SPIRT")."""

from slslab_workers.spirt.driver import Spirt

architecture = Spirt()
