# Generated from contract/proto_etcd by `make proto`; do not edit.
