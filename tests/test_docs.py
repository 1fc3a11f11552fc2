"""The pages' Python blocks run: in order, one page in one interpreter, within a time limit."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LIMIT_S = 60

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def script(page: str) -> str:
    """Give a page's blocks as one script, each statement on the line it has in the page."""
    kept = [""] * (page.count("\n") + 1)
    for block in BLOCK.finditer(page):
        first = page.count("\n", 0, block.start(1))
        for index, line in enumerate(block[1].splitlines()):
            kept[first + index] = line
    return "\n".join(kept)


def run(source: str, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
    """Run a script in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:__main__", "-"],
        input=source,
        capture_output=True,
        text=True,
        timeout=limit_s,
        cwd=ROOT,
        check=False,
    )


SPARKS = ROOT / "docs" / "spark.md"
"""Its blocks need a Spark session: `tests/spark/test_page.py` runs them."""

WITH_BLOCKS = [page for page in PAGES if page != SPARKS and BLOCK.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.name)
def test_blocks_of_a_page_run(page: Path) -> None:
    done = run(script(page.read_text(encoding="utf-8")))

    assert done.returncode == 0, f"{page.name}, by the page's own line numbers:\n{done.stderr}"


def test_the_pages_that_must_have_examples_have_some() -> None:
    assert {"README.md", "plugins.md"} <= {page.name for page in WITH_BLOCKS}


def test_failing_block_fails_with_the_line_of_the_page() -> None:
    page = "# A page\n\n```python\nx = 1\n```\n\ntext\n\n```python\nassert x == 2\n```\n"

    done = run(script(page))

    assert done.returncode == 1
    assert "line 10" in done.stderr


def test_blocks_of_other_languages_are_left_alone() -> None:
    assert script("```sh\nexit 1\n```\n").strip() == ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_inside_the_repository_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))

    assert [target for target in targets if not (page.parent / target).exists()] == []


PATH = re.compile(r"`((?:[\w.]+/)*[\w]+(?:\.py|/))`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = set(PATH.findall(page.read_text(encoding="utf-8")))

    lost = [path for path in named if not any((base / path).exists() for base in (ROOT, ROOT / "crescando"))]

    assert lost == []


def test_every_invariant_that_the_code_names_is_on_its_page() -> None:
    page = (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| (INV-\d+) ", page, re.MULTILINE))

    named = set[str]()
    for path in (ROOT / "crescando").rglob("*.py"):
        named |= set(re.findall(r"INV-\d+", path.read_text(encoding="utf-8")))

    assert named == listed
