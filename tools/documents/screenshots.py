"""Draw the example pages of `documents.example_pages` as pictures, in Chromium.

`python -m documents.screenshots` (part of `make docs-recording`, in the environment of the site's
tools) needs Chromium on the PATH.
"""

import shutil
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

PICTURES: Final = Path(__file__).parents[2] / "docs" / "pictures"
PAGES: Final = ("plan", "audit")
SIZE: Final = {"width": 1100, "height": 1000}


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("Chromium is needed for the pictures: install the package chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)
        for name in PAGES:
            page.goto((PICTURES / f"{name}.html").as_uri())
            picture = PICTURES / f"{name}.png"
            page.screenshot(path=picture)
            print(f"{picture.name}: {picture.stat().st_size:,} bytes")
        browser.close()


if __name__ == "__main__":
    main()
