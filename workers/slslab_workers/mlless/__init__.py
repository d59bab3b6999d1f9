"""MLLess: workers announce significant updates, a supervisor says which to expect (protocol reference, chapter 5)."""

from slslab_workers.mlless.driver import MLLess

architecture = MLLess()
