"""The house rules as an ordinary test: sizes, names, docstrings, purity of cores, reasons of limits.

Belongs here: rules that a look at the source decides. Not here: imports between components (.importlinter), style and
types (ruff, mypy). Each rule takes one source and returns its sentences of complaint; the samples prove that it bites.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
COMPONENTS = ("contract", "runtime", "client", "redirector", "slice_node", "ops", "loadtest", "pipeline")
GENERATED = tuple(ROOT / "contract" / package / "wire" for package in ("shoal_contract", "shoal_coordination"))

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
DESIGN_WORDS_MAX = 2500
SLEEP_S_MAX = 0.1
TWICE_PARTS_MIN = 15
LONG_BECAUSE = "Long because"
VAGUE_WORDS = {"util", "utils", "helper", "helpers", "manager", "managers", "common"}
IMPURE_MODULES = {
    "asyncio",
    "uvloop",
    "grpc",
    "lmdb",
    "socket",
    "ssl",
    "select",
    "time",
    "os",
    "io",
    "pathlib",
    "tempfile",
    "shutil",
    "subprocess",
    "multiprocessing",
    "threading",
    "random",
    "secrets",
    "uuid",
}
UNFINISHED = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X])\b")
HIDDEN_IMPORT = re.compile(r"^\s*(from shoal\w*[\w.]* import|import shoal\w*)", re.MULTILINE)
LINKED = re.compile(r"\]\(((?!https?:)[^)#\s]*)(?:#([^)\s]+))?\)")
GUIDE = re.compile(r"\bdocs/[\w/-]+\.md\b")
CITED = re.compile(r"`((?:[\w-]+/)+[\w.-]+\.(?:py|md|proto|yaml|toml))`")
BOUND = re.compile(r"_(MAX|MIN|PER_STEP)$")
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass(frozen=True)
class Source:
    """One Python file. `path` is relative to the repository."""

    path: Path
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))


Rule = Callable[[Source], Iterator[str]]


def file_is_short(source: Source) -> Iterator[str]:
    lines = source.text.count("\n")
    if lines > FILE_LINES_MAX and LONG_BECAUSE not in (ast.get_docstring(source.tree) or ""):
        yield f"{lines} lines; the limit is {FILE_LINES_MAX} unless the docstring says '{LONG_BECAUSE} ...'"


def functions_are_short(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{node.name} has {lines} lines; the limit is {FUNCTION_LINES_MAX}"


def module_says_what_it_is(source: Source) -> Iterator[str]:
    if not ast.get_docstring(source.tree):
        yield "has no module docstring"


def names_are_plain(source: Source) -> Iterator[str]:
    defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    names = [*source.path.with_suffix("").parts, *(n.name for n in ast.walk(source.tree) if isinstance(n, defined))]
    for name in names:
        for word in VAGUE_WORDS.intersection(part.lower() for part in WORD.findall(name)):
            yield f"{name}: '{word}' says nothing about what belongs there"


def core_is_pure(source: Source) -> Iterator[str]:
    if "core" not in source.path.parts or "tests" in source.path.parts:
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported = [node.module or ""]
        else:
            continue
        for name in imported:
            if name.split(".")[0] in IMPURE_MODULES:
                yield f"line {node.lineno}: a core imports no {name}"


def work_is_finished(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.text.splitlines(), 1):
        if UNFINISHED.search(line):
            yield f"line {number}: left for later: {line.strip()}"


def no_test_sleeps(source: Source) -> Iterator[str]:
    if "tests" not in source.path.parts:
        return
    for node in ast.walk(source.tree):
        if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)):
            continue
        called, seconds = ast.unparse(node.func).rpartition(".")[2], node.args[0].value
        if called == "sleep" and isinstance(seconds, int | float) and seconds >= SLEEP_S_MAX:
            yield f"line {node.lineno}: sleeps {seconds} s; wait for the thing"


def limits_have_reasons(source: Source) -> Iterator[str]:
    """A string below a constant is its reason. Constants without a blank line between them may share one."""
    if source.path.name != "limits.py":
        return
    classes = [node for node in source.tree.body if isinstance(node, ast.ClassDef)]
    for body in (source.tree.body, *(node.body for node in classes)):
        yield from (f"{name} has no reason below it" for name in without_reason(body))


def without_reason(body: list[ast.stmt]) -> list[str]:
    found: list[str] = []
    waiting: list[str] = []
    last_line = 0
    for node in body:
        if node.lineno > last_line + 1:
            found += waiting
            waiting = []
        last_line = node.end_lineno or node.lineno
        if isinstance(node, ast.AnnAssign | ast.Assign):
            waiting.append(ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0]))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            waiting = []
    return found + waiting


def bounds_stand_in_limits(source: Source) -> Iterator[str]:
    """A constant whose name says that it bounds something, and whose value is a number, belongs with the others."""
    if source.path.name == "limits.py" or "tests" in source.path.parts:
        return
    for node in source.tree.body:
        if isinstance(node, ast.AnnAssign | ast.Assign) and node.value is not None:
            name = ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])
            number = all(isinstance(part, ast.Constant | ast.BinOp | ast.operator) for part in ast.walk(node.value))
            if BOUND.search(name) and number:
                yield f"line {node.lineno}: {name} belongs into limits.py, with its reason"


def tasks_start_in_one_place(source: Source) -> Iterator[str]:
    """A task that its starter does not hold may vanish, and its failure with it. Task groups hold theirs."""
    if source.path.name == "tasks.py" or "tests" in source.path.parts:
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "create_task":
            owner = ast.unparse(node.func.value)
            if owner == "asyncio" or "loop" in owner:
                yield f"line {node.lineno}: {owner}.create_task; shoal_runtime.tasks.Tasks starts tasks"


def no_import_hides_in_a_string(source: Source) -> Iterator[str]:
    """Code in a string is seen by no rule about imports."""
    if "tests" in source.path.parts:
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and HIDDEN_IMPORT.search(node.value):
            yield f"line {node.lineno}: a string that imports"


RULES: tuple[Rule, ...] = (
    bounds_stand_in_limits,
    tasks_start_in_one_place,
    no_import_hides_in_a_string,
    file_is_short,
    functions_are_short,
    module_says_what_it_is,
    names_are_plain,
    core_is_pure,
    work_is_finished,
    no_test_sleeps,
    limits_have_reasons,
)

# What each rule must complain about, and the nearest thing that it must let pass.
SAMPLES: dict[Rule, tuple[tuple[str, str], tuple[str, str]]] = {
    bounds_stand_in_limits: (("a.py", "_ROWS_MAX: Final = 64 << 10"), ("a.py", "ROWS_MAX = 2 * OTHERS_MAX")),
    tasks_start_in_one_place: (("a.py", "asyncio.create_task(f())"), ("a.py", "group.create_task(f())")),
    no_import_hides_in_a_string: (("a.py", 'x = "import shoal_x\\nf()"'), ("a.py", 'x = "to import shoal, say"')),
    file_is_short: (("a.py", '"""A."""\n' + "x = 1\n" * 400), ("a.py", '"""A. Long because."""\n' + "x = 1\n" * 400)),
    functions_are_short: (("a.py", "def f():\n" + " x = 1\n" * 70), ("a.py", "def f():\n" + " x = 1\n" * 69)),
    module_says_what_it_is: (("a.py", "x = 1\n"), ("a.py", '"""A."""\n')),
    names_are_plain: (("a.py", "class QueueManager: ..."), ("a.py", "class Managed: ...\nfrom x import manager")),
    core_is_pure: (("p/core/a.py", "def f():\n from os.path import join"), ("p/main.py", "import os")),
    work_is_finished: (("a.py", "x = 1  # TOD" + "O: y"), ("a.py", "x = 1  # to do")),
    no_test_sleeps: (("tests/a.py", "asyncio.sleep(0.5)"), ("tests/a.py", "time.sleep(0.01)")),
    limits_have_reasons: (("limits.py", "A = 1\n\nB = 2\n'why B'"), ("limits.py", "A = 1\nB = 2\n'why both'")),
}


def sources() -> list[Source]:
    folders = [ROOT / name for name in (*COMPONENTS, "helm", "tests")]
    files = [path for folder in folders for path in sorted(folder.rglob("*.py")) if path.parent not in GENERATED]
    return [Source(path.relative_to(ROOT), path.read_text(encoding="utf-8")) for path in files]


def functions_that_stand_twice(sources: Sequence[Source]) -> list[str]:
    """Functions of modules, letter for letter the same in two of them but for their names and docstrings."""
    found: dict[str, list[str]] = {}
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.dump(node.args) + "".join(map(ast.dump, node.body[ast.get_docstring(node) is not None :]))
                if text.count("(") >= TWICE_PARTS_MIN:
                    found.setdefault(text, []).append(f"{source.path}: {node.name}")
    return [", ".join(those) for those in found.values() if len(those) > 1]


def documents() -> list[Path]:
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found += [path for name in (*COMPONENTS, "helm") for path in (ROOT / name).glob("*.md")]
    return sorted(path.relative_to(ROOT) for path in found)


FILES = [
    path.relative_to(ROOT).as_posix()
    for name in (*COMPONENTS, "docs", "helm", "tests")
    for path in (ROOT / name).rglob("*.*")
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_house_rule_holds_everywhere(rule: Rule) -> None:
    complaints = [f"{source.path}: {sentence}" for source in sources() for sentence in rule(source)]
    assert not complaints, "\n" + "\n".join(complaints)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_house_rule_bites(rule: Rule) -> None:
    (bad_path, bad), (good_path, good) = SAMPLES[rule]
    assert list(rule(Source(Path(bad_path), bad)))
    assert not list(rule(Source(Path(good_path), good)))


def test_the_cores_are_there_to_be_looked_at() -> None:
    paths = {source.path.as_posix() for source in sources()}
    assert {"client/shoal/core/ledger.py", "slice_node/shoal_slice_node/core/limits.py"} <= paths


def test_no_function_stands_twice() -> None:
    assert functions_that_stand_twice([source for source in sources() if "tests" not in source.path.parts]) == []
    texts = ("def f(a): return [b + 1 for b in a if b > 2]", "def g(a):\n 'G.'\n return [b + 1 for b in a if b > 2]")
    first, second = (Source(Path(f"{number}.py"), text) for number, text in enumerate(texts))
    assert functions_that_stand_twice([first, second]) == ["0.py: f, 1.py: g"]


@pytest.mark.parametrize("component", COMPONENTS)
def test_component_has_a_design_document(component: str) -> None:
    design = ROOT / component / "DESIGN.md"
    assert design.is_file(), f"{component}/DESIGN.md is missing"
    words = len(design.read_text(encoding="utf-8").split())
    assert words <= DESIGN_WORDS_MAX, f"{component}/DESIGN.md has {words} words; the limit is {DESIGN_WORDS_MAX}"


@pytest.mark.parametrize("document", documents(), ids=str)
def test_files_that_a_document_cites_exist(document: Path) -> None:
    """By its path in the repository, or the end of it."""
    cited = set(CITED.findall((ROOT / document).read_text(encoding="utf-8")))
    missing = [name for name in sorted(cited) if not any(f"/{path}".endswith(f"/{name}") for path in FILES)]
    assert not missing


def broken_links(document: Path, text: str) -> list[str]:
    """Links of a document to files that are not there, or to headings that their file does not have."""
    found = []
    for target, heading in LINKED.findall(text):
        path = (ROOT / document).parent / target if target else ROOT / document
        if not path.exists() or (heading and heading not in headings(path.read_text(encoding="utf-8"))):
            found.append(f"{target}#{heading}" if heading else target)
    return found


def headings(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    names = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-") for name in names}


@pytest.mark.parametrize("document", documents(), ids=str)
def test_links_of_a_document_lead_somewhere(document: Path) -> None:
    assert broken_links(document, (ROOT / document).read_text(encoding="utf-8")) == []


def test_a_broken_link_is_found() -> None:
    text = "[a](docs/gone.md) [b](docs/concepts.md#gone) [c](docs/concepts.md#words) [d](https://example.org/x)"
    assert broken_links(Path("README.md"), text) == ["docs/gone.md", "docs/concepts.md#gone"]


def test_guides_that_code_and_documents_name_exist() -> None:
    """`docs/concepts.md` in a docstring, in a message to an operator, or in a document. This file names some that are
    not there."""
    files = [ROOT / path for path in FILES if path.endswith((".py", ".md", ".yaml", ".tpl"))] + list(ROOT.glob("*.md"))
    named = {(path, name) for path in files for name in GUIDE.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 40
    gone = [(path, name) for path, name in sorted(named) if not (ROOT / name).exists()]
    assert [(path, name) for path, name in gone if path != Path(__file__)] == []


def test_the_index_names_every_guide() -> None:
    text = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    guides = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert guides - {target for target, _ in LINKED.findall(text)} == set()


def test_generated_modules_say_so_in_their_first_line() -> None:
    modules = [path for folder in GENERATED for path in folder.glob("*.py*")]
    assert modules
    silent = [path.name for path in modules if not path.read_text().startswith("# Generated ")]
    assert not silent
