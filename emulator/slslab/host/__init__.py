"""Use the kernel and the container engine: control groups, namespaces, processes, containers."""
