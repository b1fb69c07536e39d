"""A local cluster: starts etcd and Shoal's servers as processes on this machine, and keeps them running."""
