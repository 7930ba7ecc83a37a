"""Build the documentation as a site: ``python scripts/site.py [CONFIG]``.

The generator loads one script from another host, which lets the search run when you open the
pages from a folder. This program points each page to the copy in ``docs/javascripts`` instead, so
the site needs no network.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REMOTE = "https://unpkg.com/iframe-worker/shim"
LOCAL = "javascripts/iframe-worker.js"


def build(config: Path) -> Path:
    """Build the site that a configuration describes, and return its folder.

    Raises:
        subprocess.CalledProcessError: a page has a broken link or the generator fails.
    """
    program = Path(sys.executable).with_name("zensical")
    command = [str(program), "build", "--strict", "--config-file", str(config)]
    subprocess.run(command, cwd=config.parent, check=True)
    site = config.parent / "out" / "docs"
    for page in site.rglob("*.html"):
        up = "../" * (len(page.relative_to(site).parts) - 1)
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(REMOTE, up + LOCAL), encoding="utf-8")
    return site


if __name__ == "__main__":
    print(build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "mkdocs.yml").resolve()))
