"""Checks the addresses where a local cluster's clients connect, before anything is made. Its user gives them.

Belongs here: redirector's and gateway's addresses. Does not: those of slices and etcd, which the cluster chooses and
remembers (record.py).
"""

from __future__ import annotations

from shoal_contract.addresses import port_of
from shoal_contract.errors import Conflict
from shoal_local.ports import check_free, free_port


class ClientAddresses:
    """Holds the addresses, host:port each; `admin` may be empty. Port 0 becomes a free port, kept over restarts."""

    def __init__(self, listen: str, http: str, admin: str) -> None:
        self._by_option = {"--listen": listen, "--http": http, "--admin": admin}

    @property
    def listen(self) -> str:
        return self._by_option["--listen"]

    @property
    def http(self) -> str:
        return self._by_option["--http"]

    @property
    def admin(self) -> str:
        return self._by_option["--admin"]

    @property
    def ports(self) -> set[int]:
        return {port_of(address) for address in self._by_option.values() if address}

    def choose(self) -> None:
        """Tries every given port, then chooses the others. Raises Conflict for a port that is taken or given twice."""
        given = {option: address for option, address in self._by_option.items() if address}
        seen: set[int] = {0}
        for option, address in given.items():
            check_free(address, option)
            if (port := port_of(address)) in seen - {0}:
                raise Conflict(f"port {port} is given twice; choose another {option}", subject=address)
            seen.add(port)
        for option, address in given.items():
            port = port_of(address) or free_port(self.ports)
            self._by_option[option] = f"{address.rpartition(':')[0]}:{port}"
