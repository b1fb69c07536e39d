# Generated from contract/proto by `make proto`; do not edit.
