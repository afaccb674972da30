"""The first commit of a Delta table, which only one writer can make.

delta-rs checks whether a table exists, and then commits. If another writer creates the table in
between, delta-rs commits a second creation as version 1, with its files, and compares nothing. So
the first commit is made in a folder of its own and then linked into the table's log, which fails if
there is a first commit already.
"""

import os
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deltalake import CommitProperties, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions

from spindle.pipeline.export.paths import delta_location

_LOG: Final = "_delta_log"
_FIRST: Final = f"{0:020}.json"


def create_table(
    path: str,
    schema: Schema,
    actions: Sequence[AddAction],
    partition_by: Sequence[str],
    properties: CommitProperties,
) -> None:
    """Create the table at `path` with its first files.

    Raises:
        FileExistsError: another writer has created it.
    """
    with tempfile.TemporaryDirectory() as folder:
        create_table_with_add_actions(
            delta_location(folder),
            schema,
            list(actions),
            "error",
            list(partition_by),
            commit_properties=properties,
        )
        commit = (Path(folder) / _LOG / _FIRST).read_bytes()
    log = Path(path) / _LOG
    log.mkdir(parents=True, exist_ok=True)
    # delta-rs names its own unfinished commits like this, and readers pass over them.
    unfinished = log / f"_commit_{secrets.token_hex(8)}.json.tmp"
    try:
        with unfinished.open("xb") as file:
            file.write(commit)
            file.flush()
            os.fsync(file.fileno())
        os.link(unfinished, log / _FIRST)
    finally:
        unfinished.unlink(missing_ok=True)
