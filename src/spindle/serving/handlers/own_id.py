"""Requests that name a node have to name the one that they were sent to."""

from spindle.common.errors import ApiError, ErrorCode
from spindle.serving.ports import DescribedNode


def check_own_id(node: DescribedNode, name: str, unexpected: str, noun: str = "Broker") -> None:
    """`unexpected` is the text for another node's id; `{}` stands for the own one."""
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
