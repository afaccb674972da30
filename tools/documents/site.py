"""Build the site of the documents: `make docs`.

`python -m documents.site` copies the documents and the files that they link to into
build/docs/pages, in their folders, so that each link works on the site, too. It adds the pages of
the API and the plots of the benchmarks. With `--build` it then runs mkdocs, which is strict: a link
that leads nowhere is an error.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from documents.plots import plots_page

PROJECT: Final = Path(__file__).parents[2]
PAGES: Final = PROJECT / "build" / "docs" / "pages"
CONFIGURATION: Final = Path(__file__).with_name("mkdocs.yml")
FOLDERS: Final = ("docs", "examples", "deploy", "benchmarks")
NOT_COPIED: Final = ("__pycache__", ".ipynb_checkpoints")

API: Final = {
    "spindle.local": ["spindle.local"],
    "spindle.testing": ["spindle.testing"],
    "spindle.testing.histories": ["spindle.testing.histories"],
    "spindle.pipeline": ["spindle.pipeline"],
    "spindle.pipeline.export": ["spindle.pipeline.export"],
    "spindle.operations": [
        "spindle.operations.drain_run",
        "spindle.operations.balance_run",
        "spindle.operations.heal_run",
        "spindle.operations.rebuild_run",
        "spindle.operations.plan",
        "spindle.operations.history",
        "spindle.operations.plan_settings",
        "spindle.operations.events",
        "spindle.operations.cancellation",
        "spindle.operations.errors",
    ],
    "spindle.client": [
        "spindle.client.blocking.client",
        "spindle.client.blocking.producer",
        "spindle.client.blocking.group_member",
        "spindle.client.blocking.settings",
        "spindle.client.errors",
    ],
}
"""The modules on each page of the API."""


def copied() -> Iterator[Path]:
    """Yield the files that the site has, by their paths in the project."""
    yield from PROJECT.glob("*.md")
    yield PROJECT / "LICENSE"
    for folder in FOLDERS:
        for path in (PROJECT / folder).rglob("*"):
            if path.is_file() and path.parent.name not in NOT_COPIED:
                yield path


def api_page(title: str, modules: list[str]) -> str:
    """Return a page that mkdocstrings fills from the docstrings of modules."""
    lines = [f"# API: `{title}`", ""]
    for module in modules:
        if len(modules) > 1:
            lines += [f"## `{module}`", ""]
        lines += [f"::: {module}", ""]
    return "\n".join(lines)


def collect() -> None:
    """Make the folder of pages anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for path in copied():
        target = PAGES / path.relative_to(PROJECT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    api = PAGES / "docs" / "reference" / "api"
    api.mkdir(parents=True, exist_ok=True)
    for title, modules in API.items():
        (api / f"{title}.md").write_text(api_page(title, modules))
    (PAGES / "docs" / "plots.md").write_text(plots_page())


def main() -> None:
    collect()
    if "--build" in sys.argv:
        words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file"]
        environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
        done = subprocess.run([*words, str(CONFIGURATION)], env=environment, check=False)
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
