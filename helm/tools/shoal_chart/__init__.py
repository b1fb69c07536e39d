"""What the chart renders to, and those manifests run as processes of this machine, without Kubernetes.

Belongs here: rendering, and what Kubernetes does with a manifest as far as the chart uses it: names, ports, volumes,
variables, probes. Does not: anything of Shoal's own (the programs are started as the manifests say), tests.
"""
