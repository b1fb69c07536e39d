"""Connects the core to gRPC, etcd, LMDB, the disk and processes."""
