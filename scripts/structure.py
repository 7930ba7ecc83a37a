"""What imports what, counted and drawn: ``python scripts/structure.py [--svg FILE] [folder]``.

A *room* of a package is a folder or a loose file directly below it; an *arrow* says that some file
of one room imports from another. An arrow is a *back arrow* if its rooms are on a circle. Prints
the rooms by floors (a room stands above everything that it imports), with counts; ``--svg`` draws
them, without the arrows that follow from others.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

Graph = dict[str, set[str]]

_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")


def rooms_of(package: Path) -> Graph:
    """For each room of a package, those that it imports from."""
    files = sorted(package.rglob("*.py"))
    names = {_module(path, package.parent): path for path in files}
    arrows: Graph = {_room(name, package.name): set() for name in names}
    for name, path in names.items():
        own = _room(name, package.name)
        for target in _imports(path, names):
            room = _room(target, package.name)
            if room != own:
                arrows[own].add(room)
    return arrows


def _module(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _room(module: str, package: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else package


def _imports(path: Path, names: dict[str, Path]) -> set[str]:
    """Modules of the package that a file names in imports, at its top or inside of functions."""
    found = set()
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in names else node.module)
    return found & names.keys()


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a module's statements. Expressions, which no import is in, are 19 of 20 nodes."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for field in _BLOCKS:
            waiting += getattr(node, field, ())


def reachable(arrows: Graph) -> Graph:
    """For each room, all that it imports from, directly or by way of others."""
    known: Graph = {}
    for start in arrows:
        seen, open_ = set[str](), list(arrows[start])
        while open_:
            room = open_.pop()
            if room not in seen:
                seen.add(room)
                open_.extend(arrows[room])
        known[start] = seen
    return known


def back_arrows(arrows: Graph) -> int:
    """How many arrows have to go so that there are no circles: those that run against the order in
    which a room stands above what it imports, for circles the fewer ones."""
    known = reachable(arrows)
    circles = defaultdict(list)
    for room, targets in arrows.items():
        for target in targets:
            if room in known[target]:
                circles[
                    frozenset(r for r in arrows if r in known[room] and room in known[r])
                ].append((room, target))
    return sum(_least_cut(edges) for edges in circles.values())


def _least_cut(edges: list[tuple[str, str]]) -> int:
    """Arrows against the best of the orders that swapping neighbours leads to."""
    order = sorted({room for edge in edges for room in edge})

    def against(rooms: list[str]) -> int:
        place = {room: number for number, room in enumerate(rooms)}
        return sum(place[room] < place[target] for room, target in edges)

    best, improved = against(order), True
    while improved:
        improved = False
        for i in range(len(order)):
            for j in range(len(order)):
                other = order.copy()
                other.insert(j, other.pop(i))
                if against(other) < best:
                    order, best, improved = other, against(other), True
    return best


def floors_of(arrows: Graph) -> list[list[str]]:
    """Rooms by floor, lowest first; rooms of a circle share one."""
    known, floor = reachable(arrows), dict[str, int]()

    def height(room: str) -> int:
        if room not in floor:
            below = [other for other in known[room] if room not in known[other]]
            floor[room] = 1 + max(map(height, below), default=-1)
        return floor[room]

    for room in arrows:
        height(room)
    return [
        sorted(r for r in arrows if floor[r] == level) for level in range(max(floor.values()) + 1)
    ]


_WIDTH, _ROW, _BOX, _GAP = 1080, 76, 30, 14


def svg_of(arrows: Graph) -> str:
    """The rooms by floors, and the arrows that do not follow from others."""
    floors, known = floors_of(arrows), reachable(arrows)
    place: dict[str, tuple[float, float, float]] = {}  # middle, top and half of the width
    for level, rooms in enumerate(reversed(floors)):
        widths = [9 * len(room) + 22 for room in rooms]
        left = (_WIDTH - sum(widths) - _GAP * 4 * (len(rooms) - 1)) / 2
        for room, width in zip(rooms, widths, strict=True):
            place[room] = (left + width / 2, 16 + level * _ROW, width / 2)
            left += width + 4 * _GAP
    lines = []
    for room, targets in sorted(arrows.items()):
        for target in sorted(targets):
            if any(target in known[other] for other in targets if other != target):
                continue
            x, y, _ = place[room]
            to_x, to_y, _ = place[target]
            lines.append(
                f'<path d="M{x:.0f} {y + _BOX:.0f} C{x:.0f} {y + _BOX + 24:.0f} {to_x:.0f} '
                f'{to_y - 24:.0f} {to_x:.0f} {to_y:.0f}"/>'
            )
    boxes = [
        f'<rect x="{x - half:.0f}" y="{y:.0f}" width="{2 * half:.0f}" height="{_BOX}" rx="4"/>'
        f'<text x="{x:.0f}" y="{y + 20:.0f}">{escape(room)}</text>'
        for room, (x, y, half) in sorted(place.items())
    ]
    height = len(floors) * _ROW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="monospace" font-size="15" text-anchor="middle">\n'
        "<style>path{fill:none;stroke:#8a94a6;stroke-width:1.3}"
        "rect{fill:#eef2f8;stroke:#4a5a78}text{fill:#1d2738}</style>\n"
        f'<rect width="{_WIDTH}" height="{height}" style="fill:#fff;stroke:none"/>\n'
        + "\n".join(lines + boxes)
        + "\n</svg>\n"
    )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "decaysketch")
    parser.add_argument("--svg", type=Path, help="draw it there")
    options = parser.parse_args()
    arrows = rooms_of(options.folder.resolve())
    for rooms in reversed(floors_of(arrows)):
        print("  ".join(rooms))
    count = sum(map(len, arrows.values()))
    print(f"{len(arrows)} rooms, {count} arrows, {back_arrows(arrows)} of them back")
    if options.svg is not None:
        options.svg.write_text(svg_of(arrows), encoding="utf-8")


if __name__ == "__main__":
    main()
