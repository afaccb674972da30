"""Read the body of a request, by its API key."""

from spindle.common.ports import Bytes
from spindle.protocol.api import PRODUCE, request_class
from spindle.protocol.codec import decode
from spindle.protocol.message import Message
from spindle.protocol.single_produce import read_single_produce


def read_request(
    api_key: int, version: int, buffer: Bytes, position: int, max_elements: int
) -> Message:
    """Return the request of an API and version at `position`.

    `records` fields are slices of the buffer.

    Raises:
        TooManyElements: there are more than `max_elements` in all arrays together.
        ProtocolViolation: the bytes are not such a request.
    """
    if api_key == PRODUCE:
        single = read_single_produce(version, buffer, position)
        if single is not None:
            return single
    request, _ = decode(request_class(api_key), version, buffer, position, max_elements)
    return request
