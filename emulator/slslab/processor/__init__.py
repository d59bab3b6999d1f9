"""Measure this host's processor with the anchors' workloads, and keep the result; `slslab.predict` has the model."""
