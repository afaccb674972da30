"""Record `spindle disks watch` while a disk dies, as an animated picture (SVG) of its real output.

`python -m documents.recording` (`make docs-recording`) starts three brokers with two log
directories each, writes records, and runs the command in a terminal of its own. Meanwhile a disk of
broker 2 fails, and is mended and taken back. The picture has every screen that the command drew.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from rich.console import Console
from rich.style import Style
from rich.text import Text

from spindle.testing import Cluster

TARGET: Final = Path(__file__).parents[2] / "docs" / "pictures" / "disk-dies.svg"
COLUMNS: Final = 92
ROWS: Final = 30
PICTURES: Final = 18
INTERVAL_S: Final = 1.0
FAILS_AFTER_S: Final = 5.0
COMES_BACK_AFTER_S: Final = 11.0

CHARACTER_WIDTH: Final = 8.4
LINE_HEIGHT: Final = 19
MARGIN: Final = 16
FOREGROUND: Final = "#d6deeb"
BACKGROUND: Final = "#10161f"
RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN = range(1, 7)
COLOURS: Final = {
    RED: "#ff6b6b",
    GREEN: "#7bd88f",
    YELLOW: "#f5c76b",
    BLUE: "#7aa7ff",
    MAGENTA: "#d7a1ff",
    CYAN: "#6fd3e3",
}
"""The colours of a terminal, by number."""
BRIGHT: Final = 8
"""Added to the number of a bright colour."""
_HOME: Final = "\x1b[H"
"""Each screen begins at the first line of the terminal's second screen."""
_LEAVES: Final = "\x1b[?1049l"
_OTHER_CONTROL: Final = re.compile(r"\x1b\[\?\d+[hl]|\r")


def spindle(*words: str) -> list[str]:
    """Return the command line of the command `spindle` of this environment."""
    return [sys.executable, "-c", "from spindle.cli.entry import main; main()", *words]


def record(cluster: Cluster) -> list[str]:
    """Return the screens that `spindle disks watch` draws."""
    environment = {
        **os.environ,
        "TERM": "xterm-256color",
        "SPINDLE_BOOTSTRAP": cluster.bootstrap_servers,
    }
    words = spindle("disks", "watch", "--interval", str(INTERVAL_S), "--count", str(PICTURES))
    leader, follower = pty.openpty()
    size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
    fcntl.ioctl(follower, termios.TIOCSWINSZ, size)
    process = subprocess.Popen(
        words, stdin=follower, stdout=follower, stderr=follower, env=environment, close_fds=True
    )
    os.close(follower)
    output = b"".join(_read(leader))
    os.close(leader)
    if process.wait() != 0:
        raise SystemExit(output.decode(errors="replace"))
    screens = output.decode().partition(_LEAVES)[0].split(_HOME)[1:]
    texts = (_OTHER_CONTROL.sub("", screen) for screen in screens)
    return ["\n".join(map(str.rstrip, text.splitlines())).strip("\n") for text in texts]


def _read(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(descriptor, 65_536)
        except OSError:  # the other side is closed
            return
        if not data:
            return
        yield data


def break_a_disk(cluster: Cluster) -> None:
    """Fail a disk of broker 2 for a while."""
    disk = cluster.disk(2, 2)
    time.sleep(FAILS_AFTER_S)
    disk.fail()
    disk.wait_until_offline()
    time.sleep(COMES_BACK_AFTER_S - FAILS_AFTER_S)
    disk.heal()
    disk.bring_online()


def lines_of(screen: str) -> list[list[tuple[str, Style]]]:
    """Return the lines of a screen as pieces with their styles."""
    console = Console(width=COLUMNS, color_system="standard", file=open(os.devnull, "w"))  # noqa: SIM115
    lines = Text.from_ansi(screen).split("\n", allow_blank=True)
    return [
        [(segment.text, segment.style or Style()) for segment in line.render(console, end="")]
        for line in lines
    ]


def drawn(pieces: Sequence[tuple[str, Style]], row: int) -> Iterator[str]:
    """Yield the elements of one line."""
    column = 0
    y = MARGIN + LINE_HEIGHT * (row + 2)
    for text, style in pieces:
        if text.strip():
            number = (style.color.number or 0) % BRIGHT if style.color is not None else 0
            colour = COLOURS.get(number, FOREGROUND)
            weight = ' font-weight="bold"' if style.bold else ""
            faint = ' opacity="0.6"' if style.dim else ""
            start = len(text) - len(text.lstrip(" "))
            x = MARGIN + CHARACTER_WIDTH * (column + start)
            width = CHARACTER_WIDTH * len(text.strip(" "))
            yield (
                f'<text x="{x:.1f}" y="{y}" fill="{colour}"{weight}{faint} '
                f'textLength="{width:.1f}" xml:space="preserve">{escape(text.strip(" "))}</text>'
            )
        column += len(text)


def picture(screens: Sequence[str]) -> str:
    """Return the animation; without one, the screen with the offline directory is shown."""
    rows = max(screen.count("\n") for screen in screens) + 2
    width = MARGIN * 2 + CHARACTER_WIDTH * COLUMNS
    height = MARGIN * 2 + LINE_HEIGHT * rows
    shown = next((i for i, screen in enumerate(screens) if "offline:" in screen), 0)
    seconds = len(screens) * INTERVAL_S
    part = 100 / len(screens)
    prompt = escape("$ spindle disks watch")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'width="{width:.0f}" height="{height}" role="img" '
        'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14">',
        "<title>spindle disks watch: a disk of broker 2 fails and comes back</title>",
        "<style>",
        ".s{visibility:hidden}.k{visibility:visible}",
        f".s{{animation:s {seconds:g}s step-end infinite}}",
        f"@keyframes s{{0%{{visibility:visible}}{part:.3f}%{{visibility:hidden}}}}",
        "@media (prefers-reduced-motion:reduce){.s{animation:none}}",
        "</style>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
        f'<text x="{MARGIN}" y="{MARGIN + 12}" fill="{COLOURS[GREEN]}">{prompt}</text>',
    ]
    for number, screen in enumerate(screens):
        key = " k" if number == shown else ""
        delay = f"animation-delay:{number * INTERVAL_S - seconds:g}s"
        lines.append(f'<g class="s{key}" style="{delay}">')
        for row, pieces in enumerate(lines_of(screen)):
            lines += drawn(pieces, row)
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="spindle-") as folder:
        with Cluster(brokers=3, directories=2, folder=Path(folder) / "c") as cluster:
            cluster.create_topic("orders", partitions=12, configs={"min.insync.replicas": 2})
            cluster.wait_until_in_sync()
            load = spindle(
                "kafka", "producer-perf-test", "--bootstrap-server", cluster.bootstrap_servers
            )
            load += ["--topic", "orders", "--num-records", "1000000", "--record-size", "1000"]
            traffic = subprocess.Popen(
                [*load, "--throughput", "2000"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            breaking = threading.Thread(target=break_a_disk, args=(cluster,))
            breaking.start()
            try:
                screens = record(cluster)
            finally:
                traffic.kill()
                traffic.wait()
                breaking.join()
        short = [screen.replace(f"{folder}/c/", "/var/spindle/") for screen in screens]
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(picture(short))
    print(f"{TARGET.name}: {len(short)} screens")


if __name__ == "__main__":
    main()
