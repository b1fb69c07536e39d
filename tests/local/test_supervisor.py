"""The supervisor with small programs as children: what ends is named and started again, and stops come in order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from shoal_contract.errors import ShoalError, Unavailable
from shoal_local import limits
from shoal_local.child import Facts
from shoal_local.log import LogFile
from shoal_local.process import LocalProcess
from shoal_local.supervisor import Supervisor
from tests.local.said import Said
from tests.repository import with_tests

PROGRAM = "tests.local.small_server"


class Family:
    """Children of one supervisor, and what all of them said."""

    def __init__(self, folder: Path) -> None:
        self.said = Said()
        self.folder = folder
        self.supervisor = Supervisor(lambda line: self.said("shoal", line))
        self.facts: dict[str, list[Facts]] = {}
        self.children: dict[str, SmallServer] = {}

    def add(self, name: str, *arguments: str, first: Sequence[str] = ()) -> None:
        log = LogFile(self.folder / f"{name}.log")
        child = SmallServer(name, [PROGRAM, *arguments], log, self.said, first)
        self.facts[name] = []
        self.children[name] = child
        self.supervisor.add(child, self.facts[name].append)


class SmallServer(LocalProcess):
    """A LocalProcess. `silent`: it does not answer."""

    silent = False

    async def answers(self) -> bool:
        return not self.silent


@pytest.fixture
async def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Family]:
    """Its programs lie in this repository, which -P would not find."""
    for name, value in with_tests().items():
        monkeypatch.setenv(name, value)
    family = Family(tmp_path)
    yield family
    await family.supervisor.stop()


async def test_what_dies_is_named_with_its_signal_and_started_again_with_the_same_arguments(family: Family) -> None:
    family.add("one", "--say", "hello")
    await family.supervisor.start("one")
    os.kill(family.supervisor.pid("one"), signal.SIGKILL)
    await family.said.until("one ended by signal 9; starting it again in 0.25 s")
    await family.said.until("one is ready again")
    assert [facts["said"] for facts in family.facts["one"]] == ["hello", "hello"]
    assert family.facts["one"][0]["pid"] != family.facts["one"][1]["pid"]


async def test_an_exit_code_is_told_and_pauses_grow_for_each_child_alone(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESTART_S_MAX", 1.0)
    family.add("short", "--exit", "3")
    family.add("other")
    await family.supervisor.start("short")
    await family.supervisor.start("other")
    for pause in ("0.25", "0.5", "1"):
        await family.said.until(f"short ended with code 3; starting it again in {pause} s")
    os.kill(family.supervisor.pid("other"), signal.SIGKILL)
    await family.said.until("other ended by signal 9; starting it again in 0.25 s")


async def test_a_silent_child_is_told_and_left_running_and_told_again_when_it_answers(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEALTH_EVERY_S", 0.01)
    monkeypatch.setattr(limits, "SILENT_S", 0.2)
    family.add("one")
    await family.supervisor.start("one")
    pid, child = family.supervisor.pid("one"), family.children["one"]
    child.silent = True
    await family.said.until(f"one (process {pid}) has not answered for 0 s: it hangs, or the machine is very busy.")
    child.silent = False
    await family.said.until("one answers again, after ")
    assert family.supervisor.pid("one") == pid
    assert len([line for _, line in family.said.lines if "has not answered" in line]) == 1


async def test_first_arguments_are_given_until_it_was_ready_once(family: Family) -> None:
    wanted = family.folder / "wanted"
    family.add("one", "--wants", str(wanted), first=["--say", "first"])
    with pytest.raises(Unavailable):
        await family.supervisor.start("one")
    wanted.touch()
    await family.supervisor.start("one")
    await family.supervisor.crash("one")
    await family.said.until("one is ready again")
    assert [facts["said"] for facts in family.facts["one"]] == ["first", ""]


async def test_a_start_that_fails_is_told_once_with_its_reason_and_tried_until_it_works(
    family: Family, tmp_path: Path
) -> None:
    wanted = tmp_path / "wanted"
    family.add("one", "--wants", str(wanted))
    with pytest.raises(Unavailable, match=r"one ended with code 1 before it was ready: .*wanted is missing") as caught:
        await family.supervisor.start("one")
    family.supervisor.try_on("one", caught.value)
    tries = family.folder / "one.log"
    async with asyncio.timeout(60):
        while tries.read_text().count("is missing") < 3:  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)
    assert not family.said.has("did not start"), "the reason is the one that was told"
    wanted.touch()
    await family.said.until("one is ready again")


async def test_a_child_that_is_killed_on_purpose_stays_down_until_it_is_restarted(family: Family) -> None:
    family.add("one")
    await family.supervisor.start("one")
    await family.supervisor.kill("one")
    await family.supervisor.restart("one")
    assert len(family.facts["one"]) == 2
    assert not family.said.has("ended")
    await family.supervisor.crash("one")
    await family.said.until("one is ready again")


async def test_a_line_that_is_no_json_is_no_ready_line_and_leaves_no_process(family: Family) -> None:
    family.add("one", "--babble")
    with pytest.raises(ShoalError, match="one said b'babble"):
        await family.supervisor.start("one")
    with pytest.raises(ProcessLookupError):
        os.kill(family.supervisor.pid("one"), 0)


async def test_groups_stop_one_after_the_other(family: Family, tmp_path: Path) -> None:
    """Each writes to one file as it ends; the last group's first member is slow on purpose."""
    order = tmp_path / "order"
    for name in ("last", "first", "middle", "loose"):
        family.add(name, "--at-end", str(order), "--name", name)
        await family.supervisor.start(name)
    await family.supervisor.stop(["first"], ["middle"], ["last"])
    assert order.read_text().split() == ["loose", "first", "middle", "last"]
    assert not family.said.has("ended")


async def test_a_stop_during_a_restart_leaves_no_process(family: Family, tmp_path: Path) -> None:
    family.add("one", "--slow-after", str(tmp_path / "started"))
    await family.supervisor.start("one")
    await family.supervisor.crash("one")
    async with asyncio.timeout(60):
        while family.supervisor.pid("one") == family.facts["one"][0]["pid"]:  # noqa: ASYNC110 - another task's doing
            await asyncio.sleep(0.01)
    pid = family.supervisor.pid("one")
    await family.supervisor.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="stands for a full disk, on Linux")
async def test_a_log_file_that_takes_no_lines_holds_no_process_up(family: Family) -> None:
    log = LogFile(Path("/dev/full"))
    child = SmallServer("one", [PROGRAM, "--logs", "1000"], log, family.said)
    family.supervisor.add(child, lambda facts: None)
    await family.supervisor.start("one")
    await family.supervisor.stop()
    lost = [line for name, line in family.said.lines if name == "shoal" and "lines are missing" in line]
    assert len(lost) == 1 and "/dev/full" in lost[0]
    assert sum(name == "one" for name, _ in family.said.lines) == 1000
