"""MLLess: workers announce significant updates; a supervisor decides which to expect (docs/protocols.md, "MLLess")."""

from slslab_workers.mlless.driver import MLLess

architecture = MLLess()
