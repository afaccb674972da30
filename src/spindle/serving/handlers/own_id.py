"""Check that a request which names a node names the node that receives it."""

from spindle.common.errors import ApiError, ErrorCode
from spindle.serving.ports import DescribedNode


def check_own_id(node: DescribedNode, name: str, unexpected: str, noun: str = "Broker") -> None:
    """Refuse a request that names another node.

    Args:
        unexpected: the error text for another node's id; `{}` stands for the id of this one.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if not name.removeprefix("-").isdecimal():
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{noun} id must be an integer, but it is: {name}"
        )
    if int(name) != node.node_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{unexpected.format(node.node_id)} received {name}",
        )
