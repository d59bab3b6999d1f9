"""What the kernel and the container engine give: control groups, namespaces, processes, containers."""
