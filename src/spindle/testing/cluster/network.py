"""The cuts between the nodes of a cluster, and between nodes and clients."""

from collections.abc import Iterable

from spindle.testing.faults.network_faults import Cut, NetworkFaults


class ClusterNetwork:
    """The network of a cluster. Nodes are named by their ids."""

    def __init__(self) -> None:
        self._cuts: dict[tuple[int, int], Cut] = {}
        self._client_cuts: dict[int, Cut] = {}

    def cut(self, sender: int, receiver: int, how: Cut) -> None:
        """Cut one direction between two nodes."""
        self._cuts[sender, receiver] = how

    def cut_clients(self, node: int, how: Cut) -> None:
        """Cut a node off from its clients."""
        self._client_cuts[node] = how

    def heal(self) -> None:
        """End all cuts."""
        self._cuts.clear()
        self._client_cuts.clear()

    def faults_of(self, node: int) -> NetworkFaults:
        """Return the cuts of one node."""
        to_peers = {other: cut for (one, other), cut in self._cuts.items() if one == node}
        from_peers = {one: cut for (one, other), cut in self._cuts.items() if other == node}
        return NetworkFaults(to_peers, from_peers, self._client_cuts.get(node, Cut.NONE))

    def largest_connected(self, nodes: Iterable[int]) -> list[int]:
        """Return the largest group of nodes that can reach each other, by way of others, too."""
        left = list(nodes)
        groups: list[list[int]] = []
        while left:
            group = [left.pop(0)]
            for member in group:
                near = [other for other in left if not self._are_cut(member, other)]
                group += near
                left = [other for other in left if other not in near]
            groups.append(group)
        return max(groups, key=len, default=[])

    def _are_cut(self, one: int, other: int) -> bool:
        return (one, other) in self._cuts or (other, one) in self._cuts
