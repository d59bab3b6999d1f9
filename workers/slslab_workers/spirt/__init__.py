"""SPIRT: peers that each have a tensor database and a state machine (docs/protocols.md, "SPIRT")."""

from slslab_workers.spirt.driver import Spirt

architecture = Spirt()
