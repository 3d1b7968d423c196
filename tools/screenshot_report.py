"""Draw `docs/img/report.png`: the HTML report of `unpatch upgrade` on the sample project, in a browser.

python tools/screenshot_report.py           Chromium or Chrome must be installed
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "img" / "report.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def main() -> None:
    """Write the picture."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("error: no Chromium or Chrome on PATH; apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        project, page = Path(folder) / "tiny_rl", Path(folder) / "report.html"
        shutil.copytree(ROOT / "examples" / "tiny_rl", project)
        subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
        command = ["upgrade", "--from", "0.17", "--to", "0.19", "--output-format", "html", "-o", str(page)]
        subprocess.run([sys.executable, "-m", "mcore_unpatch", *command], cwd=project, check=True)
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,900"]
        subprocess.run([browser, *options, f"--screenshot={PICTURE}", page.as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    main()
