"""A local etcd's own bounds: nothing but gRPC is answered, and it comes back at its port with its data."""

from __future__ import annotations

import httpx

from shoal_coordination.client import EtcdClient
from shoal_local.etcd import LocalEtcd


async def test_web_pages_find_no_way_in(etcd: LocalEtcd) -> None:
    """etcd's HTTP/JSON gateway answers every origin, without a login: it is off, and gRPC works all the same."""
    async with EtcdClient(etcd.options()) as client, httpx.AsyncClient(trust_env=False) as http:
        await client.put(b"k", b"v")
        for path in ("/v3/kv/range", "/v3beta/kv/range", "/v3/kv/put"):
            answer = await http.post(
                f"http://{etcd.endpoint}{path}",
                content=b'{"key": "aw==", "value": "eA=="}',
                headers={"Origin": "http://evil.example", "Host": "evil.example", "Content-Type": "text/plain"},
            )
            assert answer.status_code == 404, path
        entry = await client.get(b"k")
        assert entry is not None
        assert entry.value == b"v"


async def test_it_comes_back_at_its_port_with_its_data(etcd: LocalEtcd) -> None:
    endpoint, pid = etcd.endpoint, etcd.pid
    async with EtcdClient(etcd.options()) as client:
        await client.put(b"k", b"v")
        await etcd.kill()
        assert not etcd.running
        await etcd.start()
        assert (etcd.endpoint, etcd.pid == pid) == (endpoint, False)
        assert await client.get(b"k") is not None
