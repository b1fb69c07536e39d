"""The Dockerfile as data: its stages and instructions. Enough of the format for ours."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

HELM = Path(__file__).parents[2] / "helm"
_ARGUMENT = re.compile(r"\$\{(\w+)\}")


@dataclass
class Stage:
    """`base`: an image or an earlier stage. `instructions`: (word, rest) in order, FROM left out."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        return [rest for found, rest in self.instructions if found == word]


def read_stages(text: str) -> dict[str, Stage]:
    """In order; arguments before the first stage have their defaults. Raises ValueError for an instruction outside a
    stage or a stage without a name."""
    stages: dict[str, Stage] = {}
    arguments: dict[str, str] = {}
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\\n\s*", "", lines).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "ARG" and not stages:
            name, _, default = rest.partition("=")
            arguments[name] = default
        elif word == "FROM":
            found = re.fullmatch(r"(\S+) AS (\S+)", _ARGUMENT.sub(lambda match: arguments[match[1]], rest))
            if found is None:
                raise ValueError(f"a stage without a name: {line}")
            stages[found[2]] = Stage(found[2], found[1])
        elif word:
            if not stages:
                raise ValueError(f"{line} is in no stage")
            list(stages.values())[-1].instructions.append((word, rest.strip()))
    return stages


def whole(stages: dict[str, Stage], name: str) -> list[tuple[str, str]]:
    """A stage's instructions after those of the stages it is made from."""
    stage = stages[name]
    before = whole(stages, stage.base) if stage.base in stages else []
    return [*before, *stage.instructions]


def sources_of(stage: Stage) -> list[str]:
    """What it copies out of the build's context."""
    copied = [rest.split() for rest in stage.all("COPY") if not rest.startswith("--from=")]
    return [source for words in copied for source in words[:-1]]


def variables(instructions: list[tuple[str, str]], path: str) -> dict[str, str]:
    """What ENV sets, in a base whose PATH is `path`."""
    found = {"PATH": path}
    for word, rest in instructions:
        if word == "ENV":
            for pair in rest.split():
                name, _, value = pair.partition("=")
                found[name] = value.replace("$PATH", found["PATH"])
    return found
