"""Connects the redirector with gRPC, HTTP and etcd. Only these modules await."""
