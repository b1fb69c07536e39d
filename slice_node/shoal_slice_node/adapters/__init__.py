"""Where the core meets gRPC, etcd, LMDB, the disk and processes."""
