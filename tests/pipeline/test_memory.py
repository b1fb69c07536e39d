"""Memory of Spark's JVM: a size, or a share of what the container may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal_contract.errors import BadCall
from shoal_pipeline.memory import available, heap_of

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "heap"), [("", "2g"), ("3g", "3g"), ("900m", "900m"), ("50%", "2048m"), ("99%", "4055m")]
)
def test_a_heap_is_a_size_or_a_share_of_the_machine(text: str, heap: str) -> None:
    assert heap_of(text, 4 * GIB) == heap


@pytest.mark.parametrize("text", ["0%", "100%", "3", "3G", "lots", "-1g"])
def test_another_word_is_refused(text: str) -> None:
    with pytest.raises(BadCall, match="needs a size as 900m or 3g"):
        heap_of(text, 4 * GIB)


def test_less_than_spark_starts_with_is_told_before_it_starts() -> None:
    with pytest.raises(BadCall, match="memory is 50% of 512 MiB, 256 MiB; Spark needs 512 MiB"):
        heap_of("50%", GIB // 2)


def test_a_container_has_its_limit_and_a_machine_its_memory(tmp_path: Path) -> None:
    limit, none = tmp_path / "memory.max", tmp_path / "none"
    machine = available((none,))
    limit.write_text("max\n")
    assert available((limit,)) == machine
    limit.write_text(f"{256 << 20}\n")
    assert available((none, limit)) == 256 << 20
    limit.write_text(f"{1 << 62}\n")
    assert available((limit,)) == machine
