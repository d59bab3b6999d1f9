"""The stack as a service for users' own functions (`slslab up`), and `slslab doctor`."""
