"""Renders the chart, and runs its manifests as processes of this machine, without Kubernetes.

Belongs here: rendering, and what Kubernetes does with a manifest as far as the chart uses it: names, ports, volumes,
variables, probes. Not here: anything of Shoal's own (the programs are started as the manifests say), tests.
"""
