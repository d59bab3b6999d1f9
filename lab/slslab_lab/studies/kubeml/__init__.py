"""Figures of KubeML: its times by merges, and its accuracy by global batch."""
