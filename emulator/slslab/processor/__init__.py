"""Measure this host's processor by the anchors' workloads, and keep the result; `slslab.predict` has the model."""
