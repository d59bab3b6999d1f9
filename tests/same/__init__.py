"""The net under a refactoring: what users see of slslab, recorded and compared (`make same`)."""
