"""Limits and failures as a function meets them, in containers and through LocalStack: the same module, unchanged."""

from tests.emulator.lambda_ import test_conformance as processes

# These make an emulator of their own, which LocalStack does not stand in front of.
OWN = {
    "test_a_template_forks_environments_and_says_so",
    "test_a_template_may_hold_libraries_with_threads",
    "test_idle_environments_end_after_their_time",
    "test_the_account_and_the_scaling_rate_throttle",
}
globals().update({name: value for name, value in vars(processes).items() if name not in OWN})
