"""SPIRT: peers with a tensor database and a state machine each (protocol reference, chapter 2)."""

from slslab_workers.spirt.driver import Spirt

architecture = Spirt()
