"""KubeML: functions that train locally, and a job that averages their models (docs/protocols.md, "KubeML")."""

from slslab_workers.kubeml.driver import KubeML

architecture = KubeML()
