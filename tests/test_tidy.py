"""The house rules as an ordinary test: sizes, names, docstrings, reasons of limits, who writes which fields.

Belongs here: rules that a look at the source decides. Not here: imports between components and of cores
(.importlinter), documents (test_documents.py), style and types (ruff, mypy). Each rule takes one source and returns its
sentences of complaint; the samples prove that it bites.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

from tests.repository import COMPONENTS, ROOT, parsed

GENERATED = tuple(ROOT / "contract" / package / "wire" for package in ("shoal_contract", "shoal_coordination"))

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
SLEEP_S_MAX = 0.1
TWICE_PARTS_MIN = 15
LONG_BECAUSE = "Long because"
VAGUE_WORDS = {"util", "utils", "helper", "helpers", "manager", "managers", "common"}
SLICE_NODE = "slice_node/shoal_slice_node/"
DISPATCH_USERS = tuple(
    SLICE_NODE + folder for folder in ("core/dispatch/", "core/node/", "core/background/", "adapters/")
)
DISPATCH_CLASSES = {"Attachment", "DispatchShares", "Feed", "Lease", "Out", "Parcel", "Session", "Share", "Stream"}
OTHER_OBJECTS = ("counters", "interest")
"""Their fields have names that fields of dispatch have, too."""
CONSUMERS = {"all", "any", "difference_update", "extend", "join", "max", "min", "sorted", "sum", "tuple", "update"}
"""Functions that consume all of an iterator at once."""
WRITES_FIELDS = {SLICE_NODE + "core/dispatch/growing.py": "_give"}
"""Functions that write fields of others. `_give` gives a chunk to every stream of a key: by methods a delivery takes
twice as long (figures in its docstring)."""
CHANGES = {"append", "appendleft", "add", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove"}
CHANGES |= {"reverse", "rotate", "setdefault", "sort", "update", "move_to_end"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
VERB = re.compile(r"[A-Z][a-z]*s\b|See ")
UNSAID = re.compile(r"[A-Z][a-z]*s (them|it|those|these)\b")
FRAGMENT = re.compile(r"['\"\s]*(Whether|Of|By) ")
UNFINISHED = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X])\b")
HIDDEN_IMPORT = re.compile(r"^\s*(from shoal\w*[\w.]* import|import shoal\w*)", re.MULTILINE)
BOUND = re.compile(r"_(MAX|MIN|PER_STEP)$")
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass(frozen=True)
class Source:
    """One Python file. `path` is relative to the repository."""

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return parsed(self.text, str(self.path))


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


def docstrings_begin_with_a_verb(source: Source) -> Iterator[str]:
    """A function's docstring says what it does: `Returns whether ...`, and a class's, too: `Keeps ...`. Those of
    commands are what `--help` shows."""
    if "tests" in source.path.parts or source.path.stem.startswith("cli"):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and node.name != "__init__":
            text = ast.get_docstring(node) or "Does something."
            if not VERB.match(text):
                yield f"line {node.lineno}: {node.name}: begins with '{text.split()[0]}', which is no verb"
            if isinstance(node, ast.ClassDef) and UNSAID.match(text):
                yield f"line {node.lineno}: {node.name}: '{text[:20]}' does not say what it is about"
        elif isinstance(node, ast.Expr) and (fragment := FRAGMENT.match(ast.unparse(node))):
            instead = "True if ..." if fragment[1] == "Whether" else "Maps a key to ..."
            yield f"line {node.lineno}: '{fragment[1]}' begins no sentence; a field is '{instead}'"


@cache
def dispatch_fields() -> set[str]:
    """The fields of dispatch's classes, by their `__slots__`."""
    found: set[str] = set()
    for path in (ROOT / DISPATCH_USERS[0]).glob("*.py"):
        for node in parsed(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name in DISPATCH_CLASSES:
                slots = [one.value for one in node.body if isinstance(one, ast.Assign)]
                found.update(ast.literal_eval(slots[0]))
    return found


def written(node: ast.AST) -> list[ast.expr]:
    """What a statement assigns, changes or deletes; a call of a container's method changes the container."""
    if isinstance(node, ast.Assign | ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
        targets = [node.func.value]
    else:
        return []
    return [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]


def made_in(function: ast.AST) -> set[str]:
    """The names to which a function assigns what it makes, and the parts of messages that it makes."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=True))
            for name, call in pairs:
                made = ast.unparse(call.func).split(".") if isinstance(call, ast.Call) else [""]
                if isinstance(call, ast.Call) and made[-1][:1].isupper():
                    found.add(ast.unparse(name))
                    found.update(f"{ast.unparse(name)}.{one.arg}" for one in call.keywords if made[0] == "wire")
    return found


def dispatch_writes_its_own_fields(source: Source, exceptions: Mapping[str, str] = WRITES_FIELDS) -> Iterator[str]:
    """A field of a feed, session, stream ... is written by methods of its class, or by the function that made the
    object: others call a method that says what happened. What is in a field (a dict, a deque) counts as the field."""
    path = source.path.as_posix()
    if not path.startswith(DISPATCH_USERS):
        return
    fields = dispatch_fields()
    for function in (node for node in ast.walk(source.tree) if isinstance(node, FUNCTIONS)):
        if exceptions.get(path) == function.name:
            continue
        own = {"self"} | made_in(function)
        for target in (one for node in ast.walk(function) for one in written(node)):
            while isinstance(target, ast.Subscript):
                target = target.value
            if not isinstance(target, ast.Attribute) or target.attr not in fields:
                continue
            holder = ast.unparse(target.value)
            if holder not in own and not holder.endswith(OTHER_OBJECTS):
                yield f"line {target.lineno}: {function.name} writes {ast.unparse(target)}: call a method of its class"


def each_test_stands_alone(source: Source) -> Iterator[str]:
    """What several test modules need stands in a module that is no test: one may be changed without the others."""
    for node in ast.walk(source.tree) if source.path.parts[0] == "tests" else ():
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2].startswith("test_"):
            yield f"line {node.lineno}: imports from {node.module}, a test"


def core_generators_are_consumed_whole(source: Source) -> Iterator[str]:
    """mypyc makes a list of a generator expression at once: what is read in part must be a function that yields."""
    if "core" not in source.path.parts or source.path.parts[0] != "slice_node":
        return
    consumed = set[ast.AST]()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Starred):
            consumed.add(node.value)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in CONSUMERS:
            consumed.update(node.args)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.GeneratorExp) and node not in consumed:
            yield f"line {node.lineno}: the compiled core reads all of `{ast.unparse(node)}` at once"


RULES: tuple[Rule, ...] = (
    core_generators_are_consumed_whole,
    dispatch_writes_its_own_fields,
    docstrings_begin_with_a_verb,
    bounds_stand_in_limits,
    tasks_start_in_one_place,
    no_import_hides_in_a_string,
    file_is_short,
    functions_are_short,
    module_says_what_it_is,
    names_are_plain,
    work_is_finished,
    no_test_sleeps,
    limits_have_reasons,
    each_test_stands_alone,
)

# What each rule must complain about, and the nearest thing that it must let pass.
SAMPLES: dict[Rule, tuple[tuple[str, str], tuple[str, str]]] = {
    core_generators_are_consumed_whole: (
        ("slice_node/core/a.py", "def f(x):\n return (y for y in x)"),
        ("slice_node/core/a.py", "def f(x):\n return sum(y for y in x)"),
    ),
    dispatch_writes_its_own_fields: (
        (DISPATCH_USERS[3] + "a.py", "def f(a):\n a.session.owed += 1"),
        (DISPATCH_USERS[3] + "a.py", "def f(self):\n s = Session(1)\n s.owed = 1\n self.owed += 1\n s.own()"),
    ),
    docstrings_begin_with_a_verb: (("a.py", "def f():\n 'Whether so.'"), ("a.py", "def f():\n 'Returns it.'")),
    bounds_stand_in_limits: (("a.py", "_ROWS_MAX: Final = 64 << 10"), ("a.py", "ROWS_MAX = 2 * OTHERS_MAX")),
    tasks_start_in_one_place: (("a.py", "asyncio.create_task(f())"), ("a.py", "group.create_task(f())")),
    no_import_hides_in_a_string: (("a.py", 'x = "import shoal_x\\nf()"'), ("a.py", 'x = "to import shoal, say"')),
    file_is_short: (("a.py", '"""A."""\n' + "x = 1\n" * 400), ("a.py", '"""A. Long because."""\n' + "x = 1\n" * 400)),
    functions_are_short: (("a.py", "def f():\n" + " x = 1\n" * 70), ("a.py", "def f():\n" + " x = 1\n" * 69)),
    module_says_what_it_is: (("a.py", "x = 1\n"), ("a.py", '"""A."""\n')),
    names_are_plain: (("a.py", "class QueueManager: ..."), ("a.py", "class Managed: ...\nfrom x import manager")),
    work_is_finished: (("a.py", "x = 1  # TOD" + "O: y"), ("a.py", "x = 1  # to do")),
    no_test_sleeps: (("tests/a.py", "asyncio.sleep(0.5)"), ("tests/a.py", "time.sleep(0.01)")),
    limits_have_reasons: (("limits.py", "A = 1\n\nB = 2\n'why B'"), ("limits.py", "A = 1\nB = 2\n'why both'")),
    each_test_stands_alone: (("tests/a.py", "from .test_b import c"), ("tests/a.py", "from shoal.testing import c")),
}


@cache
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


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_house_rule_holds_everywhere(rule: Rule) -> None:
    complaints = [f"{source.path}: {sentence}" for source in sources() for sentence in rule(source)]
    assert not complaints, "\n" + "\n".join(complaints)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_house_rule_bites(rule: Rule) -> None:
    (bad_path, bad), (good_path, good) = SAMPLES[rule]
    assert list(rule(Source(Path(bad_path), bad)))
    assert not list(rule(Source(Path(good_path), good)))


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_class_that_does_not_say_what_it_does_is_found(component: str) -> None:
    def complaints(docstring: str) -> list[str]:
        text = f"class A:\n {docstring!r}"
        return list(docstrings_begin_with_a_verb(Source(Path(component, "a.py"), text)))

    assert complaints("The parts of one generator.") and not complaints("Keeps the parts of one generator.")
    assert complaints("Keeps them. Each is a part."), "what these are is said above, if at all"


@pytest.mark.parametrize("fragment", ["Whether it is open.", "By key.", "Of this queue, the keys."])
def test_a_fragment_below_a_field_or_a_module_is_found(fragment: str) -> None:
    for text in (f"class A:\n 'Keeps parts.'\n def __init__(self):\n  self.a = 1\n  {fragment!r}", repr(fragment)):
        assert len(list(docstrings_begin_with_a_verb(Source(Path("a.py"), text)))) == 1


@pytest.mark.parametrize("write", ["a.feed.lagging.pop()", "del a.waiting[1]", "a.streams[1] = a", "a.end, b = 1, 2"])
def test_each_way_to_write_a_field_of_dispatch_is_refused(write: str) -> None:
    source = Source(Path(DISPATCH_USERS[0] + "a.py"), f"def f(a):\n {write}")
    assert len(list(dispatch_writes_its_own_fields(source))) == 1


def test_no_function_may_write_fields_of_dispatch_without_need() -> None:
    for path, function in WRITES_FIELDS.items():
        found = dispatch_writes_its_own_fields(Source(Path(path), (ROOT / path).read_text(encoding="utf-8")), {})
        assert any(f": {function} writes" in sentence for sentence in found)


def test_no_function_stands_twice() -> None:
    assert functions_that_stand_twice([source for source in sources() if "tests" not in source.path.parts]) == []
    texts = ("def f(a): return [b + 1 for b in a if b > 2]", "def g(a):\n 'G.'\n return [b + 1 for b in a if b > 2]")
    first, second = (Source(Path(f"{number}.py"), text) for number, text in enumerate(texts))
    assert functions_that_stand_twice([first, second]) == ["0.py: f, 1.py: g"]


def test_generated_modules_say_so_in_their_first_line() -> None:
    modules = [path for folder in GENERATED for path in folder.glob("*.py*")]
    assert modules
    silent = [path.name for path in modules if not path.read_text().startswith("# Generated ")]
    assert not silent
