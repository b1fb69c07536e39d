"""Writes a reference of the library for its users, one page of HTML: `make docs`. A test looks for every public name.

Belongs here: how pdoc is used. Not here: the texts, which are the docstrings of `shoal`; the guide, docs/library.md.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import ModuleType

from pdoc import doc, doc_ast, render

import shoal
import shoal.testing


def reference(documented: ModuleType) -> doc.Module:
    """Returns what pdoc knows of a module: the names of its `__all__`."""
    module = doc.Module(documented)
    for member in module.members.values():
        if isinstance(member, doc.Variable) and not member.docstring:
            member.docstring = _text_where_it_is_set(member.name)
    return module


def _text_where_it_is_set(name: str) -> str:
    """Returns the text below `NAME = ...` in the module that sets it. pdoc looks for it only in the module that it
    documents, where the name is imported."""
    below = [module for path, module in sys.modules.items() if path.startswith("shoal.")]
    return next(
        (texts[name] for texts in (doc_ast.walk_tree(one).var_docstrings for one in below) if name in texts), ""
    )


def write(folder: Path) -> None:
    """Writes `shoal.html` and `shoal/testing.html`, with the index of their search, and an `index.html` that leads to
    them."""
    # Named tuples keep some annotations as text that pdoc cannot resolve. It shows the text.
    warnings.filterwarnings("ignore", "Error parsing type annotation")
    render.configure(docformat="markdown", show_source=False)
    modules = {module.fullname: module for module in map(reference, (shoal, shoal.testing))}
    for name, module in modules.items():
        page = folder / f"{name.replace('.', '/')}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(render.html_module(module, modules), encoding="utf-8")
    (folder / "index.html").write_text(render.html_index(modules), encoding="utf-8")
    (folder / "search.js").write_text(render.search_index(modules), encoding="utf-8")
    print(f"written: {folder / 'shoal.html'}")  # noqa: T201 - a command


if __name__ == "__main__":
    write(Path(sys.argv[1]))
