"""Measure wording habits against a budget: ``python scripts/prose.py [--update] [FILE ...]``.

Counts four habits in running prose, per 1,000 words: relatives used as nouns ("of what", "by
whoever"), the word *of*, semicolons, and *you*. Running prose is Markdown without code, tables
and headings, and Python docstrings without examples.

``make lint`` runs it. A file fails when it exceeds the budget and also exceeds the counts recorded
for it in ``scripts/prose.json``. So new files keep the budget, and old files only get better.
``--update`` lowers the recorded counts to the current ones. It never raises them, unless there is
no record yet.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
RECORD: Final = ROOT / "scripts" / "prose.json"
PACKAGES: Final = ("decaysketch", "api", "spark_jobs")
PAGES: Final = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")

RELATIVE: Final = re.compile(
    r"(?:^|[.;:,(]\s+|\b(?:of|by|for|in|with|and|to|is|from)\s+)"
    r"(?:what|who|whoever|whatever|whose|which)\b",
    re.IGNORECASE,
)
WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]*")

# Markdown that is not running prose, in the order in which it is removed.
MARKUP: Final = (
    (re.compile(r"```.*?```", re.S), " "),
    (re.compile(r"<!--.*?-->", re.S), " "),
    (re.compile(r"^\s*\|.*$", re.M), " "),
    (re.compile(r"^(?: {4,}|\t).*$", re.M), " "),
    (re.compile(r"!\[[^\]]*\]\([^)]*\)"), " "),
    (re.compile(r"\[([^\]]*)\]\([^)]*\)"), r"\1"),
    (re.compile(r"^#+.*$", re.M), ". "),
    (re.compile(r"`[^`]*`"), "X"),
    (re.compile(r"https?://\S+"), "X"),
    (re.compile(r"^\s*[-*]\s+", re.M), ". "),
    (re.compile(r"[*_]"), ""),
)


class Habits(NamedTuple):
    """Counts of one text: words, relatives used as nouns, *of*, semicolons, *you*."""

    words: int
    relatives: int
    of: int
    semicolons: int
    you: int

    def excess(self, allowed: tuple[int, ...]) -> list[str]:
        """The counts above ``allowed`` (relatives, of, semicolons), as words."""
        names = ("noun relatives", "of", "semicolons")
        counts = (self.relatives, self.of, self.semicolons)
        return [
            f"{count} {name}, {limit} allowed"
            for count, name, limit in zip(counts, names, allowed, strict=True)
            if count > limit
        ]


def habits(prose: str) -> Habits:
    """The counts of a text without markup."""
    words = [word.lower() for word in WORD.findall(prose)]
    return Habits(
        len(words),
        len(RELATIVE.findall(prose)),
        words.count("of"),
        prose.count(";"),
        words.count("you") + words.count("your"),
    )


def budget(words: int) -> tuple[int, ...]:
    """Allowed relatives, *of* and semicolons: 3, 25 and 2 per 1,000 words, and one more each.

    The extra one keeps a file of three sentences from failing over a single word.
    """
    return tuple(rate * words // 1000 + 1 for rate in (3, 25, 2))


def running_prose(path: Path) -> str:
    """The running prose of a Markdown page, or of all docstrings of a Python file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return _without_markup(text)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (
        ast.get_docstring(node) for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)
    )
    examples = re.compile(r"^\s*(?:>>>|\.\.\.).*$", re.M)
    return "\n\n".join(_without_markup(examples.sub("", doc)) for doc in found if doc)


def _without_markup(text: str) -> str:
    for pattern, replacement in MARKUP:
        text = pattern.sub(replacement, text)
    return text


def measured_files() -> list[Path]:
    """Every page of the documentation and every module of the product."""
    pages = [ROOT / name for name in PAGES if (ROOT / name).exists()]
    pages += sorted((ROOT / "docs").rglob("*.md"))
    return pages + [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))]


def main(arguments: list[str]) -> int:
    update = "--update" in arguments
    named = [Path(name).resolve() for name in arguments if not name.startswith("--")]
    recorded: dict[str, list[int]] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    kept: dict[str, list[int]] = {}
    failures = []
    for path in named or measured_files():
        name = path.relative_to(ROOT).as_posix()
        found = habits(running_prose(path))
        within, counts = budget(found.words), (found.relatives, found.of, found.semicolons)
        before = recorded.get(name, within if recorded else counts)
        allowed = tuple(map(max, within, before))
        if excess := found.excess(allowed):
            failures.append(f"{name}: {'; '.join(excess)} in {found.words} words")
        if any(count > limit for count, limit in zip(counts, within, strict=True)):
            kept[name] = [min(pair) for pair in zip(counts, allowed, strict=True)]
    if update:
        lines = (f"  {json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept))
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
