"""The values of `--start` and `--end` as options of a data source."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import click

from spindle.pipeline.options.values import json_object

Edge = Literal["starting", "ending"]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OPTIONS: Final = {"starting": "--start", "ending": "--end"}


def place_options(edge: Edge, topic: str, text: str) -> dict[str, str]:
    """Return the option of the data source for a place in the topics.

    Args:
        topic: The topic that is exported.
        text: `earliest`, `latest`, a time in ISO 8601 (UTC if it names no zone), or the offsets as
            JSON: {"0": 17, "1": 4}.

    Raises:
        click.BadParameter: the text is none of these.
    """
    if text in ("earliest", "latest"):
        return {f"{edge}Offsets": text}
    option = _OPTIONS[edge]
    if text.startswith("{"):
        return {f"{edge}Offsets": json.dumps({topic: _offsets(option, text)})}
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{option} {text!r}: want earliest, latest, a time such as 2026-11-23T12:00 or offsets "
            'such as {"0": 17}'
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    time_ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    if time_ms < 0:
        raise click.BadParameter(f"{option} {text!r} is before 1970")
    return {f"{edge}Timestamp": str(time_ms)}


def _offsets(option: str, text: str) -> dict[str, Any]:
    """Return the offsets by partition; the source checks them."""
    try:
        return json_object(option, text, '{"0": 17, "1": 4}')
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
