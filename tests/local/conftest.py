"""The etcd of these tests is that of tests/coordination: every version that this machine has."""

from tests.coordination.conftest import etcd as etcd
from tests.coordination.conftest import program as program
