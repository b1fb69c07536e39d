"""Coordinates through etcd: a thin typed client and the cluster's records. See ../COORDINATION.md."""
