"""GradsSharding, λ-FL and LIFL: functions that average many clients' gradients (docs/protocols.md)."""

from slslab_workers.gradssharding.driver import GradsSharding

architecture = GradsSharding()
