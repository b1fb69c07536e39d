"""Samples every slice's figures at a steady pace, and computes the rates between samples.

Belongs here: what is kept and how a rate is made of counters. Not here: its form in JSON (models_admin.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from time import time
from typing import NoReturn

import shoal
from shoal_contract.errors import ShoalError
from shoal_ops.http import limits


@dataclass(frozen=True, slots=True)
class Rates:
    """Holds rates per second, between two samples. `changes`: binds and unbinds."""

    binds: float = 0
    unbinds: float = 0
    publishes: float = 0
    deliveries: float = 0
    acks: float = 0

    @property
    def changes(self) -> float:
        return self.binds + self.unbinds


@dataclass(frozen=True, slots=True)
class SliceSample:
    """Describes one slice in a sample. `figures` is None where it did not answer; `problem` says why."""

    info: shoal.SliceInfo
    figures: shoal.SliceFigures | None
    rates: Rates
    problem: str


@dataclass(frozen=True, slots=True)
class Sample:
    """Holds one sample of the cluster. `problem`: why no redirector answered; then the slices are those known
    before."""

    time_ms: int
    map_version: int
    map_age_ms: int
    partitions: int
    slices: tuple[SliceSample, ...]
    problem: str


class Sampler:
    """Keeps the newest samples. Run `run` as a task. `samples`: at most SAMPLES_MAX."""

    def __init__(self, admin: shoal.Admin) -> None:
        self._admin = admin
        self._first = asyncio.Event()
        self.samples: deque[Sample] = deque(maxlen=limits.SAMPLES_MAX)

    async def newest(self) -> Sample:
        """Returns the newest sample; waits until there is one."""
        await self._first.wait()
        return self.samples[-1]

    async def run(self) -> NoReturn:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            self.samples.append(await self._look())
            self._first.set()
            await asyncio.sleep(max(limits.SAMPLE_EVERY_S / 4, began + limits.SAMPLE_EVERY_S - loop.time()))

    async def _look(self) -> Sample:
        before = self.samples[-1] if self.samples else None
        problem = ""
        try:
            async with asyncio.timeout(limits.SAMPLE_DEADLINE_S):
                cluster = await self._admin.cluster()
        except (ShoalError, TimeoutError) as error:
            problem = str(error) or "no redirector answers"
            cluster = shoal.ClusterInfo(
                before.map_version if before else 0,
                before.map_age_ms if before else 0,
                before.partitions if before else 0,
                tuple(one.info for one in before.slices) if before else (),
            )
        known = {one.info.slice: one for one in before.slices} if before else {}
        asked = [self._look_at(info, known.get(info.slice)) for info in cluster.slices]
        slices = tuple(await asyncio.gather(*asked))
        return Sample(int(time() * 1000), cluster.map_version, cluster.age_ms, cluster.partitions, slices, problem)

    async def _look_at(self, info: shoal.SliceInfo, before: SliceSample | None) -> SliceSample:
        if not info.address:
            return SliceSample(info, None, Rates(), "has no leader")
        try:
            async with asyncio.timeout(limits.SAMPLE_DEADLINE_S):
                figures = await self._admin.figures(info.slice)
        except TimeoutError:
            return SliceSample(info, None, Rates(), f"no answer within {limits.SAMPLE_DEADLINE_S:g} s")
        except ShoalError as error:
            return SliceSample(info, None, Rates(), error.message)
        return SliceSample(info, figures, _rates(before.figures if before else None, figures), "")


def _rates(before: shoal.SliceFigures | None, now: shoal.SliceFigures) -> Rates:
    """Returns the rates since the sample `before`. A node that starts counts from 0 again: then there is no rate
    yet."""
    if before is None or before.node != now.node or now.uptime_s < before.uptime_s or now.time_ms <= before.time_ms:
        return Rates()
    seconds = (now.time_ms - before.time_ms) / 1000
    was, has = before.counters, now.counters
    return Rates(
        binds=(has.binds - was.binds) / seconds,
        unbinds=(has.unbinds - was.unbinds) / seconds,
        publishes=(has.publishes - was.publishes) / seconds,
        deliveries=(has.deliveries - was.deliveries) / seconds,
        acks=(has.acks - was.acks) / seconds,
    )


def total(rates: Iterable[Rates]) -> Rates:
    found = list(rates)
    return Rates(
        binds=sum(one.binds for one in found),
        unbinds=sum(one.unbinds for one in found),
        publishes=sum(one.publishes for one in found),
        deliveries=sum(one.deliveries for one in found),
        acks=sum(one.acks for one in found),
    )
