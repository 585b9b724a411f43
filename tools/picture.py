"""Draw the README's picture: the top of the report on the bundled log, as a browser shows it.

    .venv/bin/python tools/picture.py

It needs Chromium (or Chrome) and writes docs/images/fleet-report.png.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

import holdfast.fleet as fleet
from holdfast.errors import HoldfastError
from holdfast.fleet import Assumptions

REPOSITORY = Path(__file__).resolve().parents[1]
PICTURE = REPOSITORY / "docs" / "images" / "fleet-report.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTH, HEIGHT, SCALE = 1200, 1190, 1.5
COLOURS = 64
"""Text and tiles need no more; it keeps the picture small."""
MOST_BYTES = 250_000

# The bundled log's time is compressed: its jobs last seconds where others last hours.
COMPRESSED = Assumptions(
    check_before_s=45,
    check_after_s=10,
    min_gpus=0,
    preemption_grace_s=8,
    preemption_slack_s=30,
    checkpoint_interval_s=20,
    init_s=1,
    write_s=1,
    long_run_s=30,
)


def main() -> None:
    """Ingest, report, photograph."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise HoldfastError(f"no browser found\n  expected: one of {', '.join(BROWSERS)}")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        store, page = Path(folder) / "store", Path(folder) / "report.html"
        fleet.ingest([REPOSITORY / "examples" / "slurm-testbed"], store)
        fleet.report(fleet.open(store, assumptions=COMPRESSED), html=page)
        photograph(browser, page, Path(folder) / "profile")
    size = PICTURE.stat().st_size
    if size > MOST_BYTES:
        raise HoldfastError(f"{PICTURE}: {size:,} bytes\n  expected: at most {MOST_BYTES:,}")
    sys.stdout.write(f"{PICTURE.relative_to(REPOSITORY)}: {size:,} bytes\n")


def photograph(browser: str, page: Path, profile: Path) -> None:
    """Write the picture of the top of a page."""
    command = [
        *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
        *(f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}"),
        *(f"--force-device-scale-factor={SCALE}", "--virtual-time-budget=3000"),
        *(f"--screenshot={PICTURE}", page.as_uri()),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    with Image.open(PICTURE) as picture:
        small = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
