"""Where the redirector meets gRPC, HTTP and etcd. Only these await."""
