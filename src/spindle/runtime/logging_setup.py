"""Where a node's log lines go and how they look."""

import logging
import sys


def set_up_logging(level: int = logging.INFO) -> None:
    """Lines as Kafka's default layout has them, to standard output."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        logging.Formatter(
            "[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)", "%Y-%m-%d %H:%M:%S"
        )
    )
    root = logging.getLogger("spindle")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False
