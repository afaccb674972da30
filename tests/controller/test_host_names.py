"""Names of hosts in quotas: hostile ones leave the system's resolver to others."""

import asyncio

from spindle.runtime.controller.host_names import HostNames


class Resolver:
    """Knows the addresses of some hosts; answers when its gate is open."""

    def __init__(self, *known: str) -> None:
        self.gate = asyncio.Event()
        self.known = known
        self.asked: list[str] = []

    async def look_up(self, name: str) -> None:
        self.asked.append(name)
        await self.gate.wait()
        if name not in self.known:
            raise OSError(name)


async def test_the_resolver_is_asked_for_one_name_at_a_time() -> None:
    resolver = Resolver()
    hosts = HostNames(resolver.look_up, timeout_s=0.01)
    requests = [hosts.unresolved([name]) for name in ("a", "b", "c")]
    assert await asyncio.gather(*requests) == [["a"], ["b"], ["c"]]
    # The look-up of the first name goes on after its request was answered.
    assert resolver.asked == ["a"]
    resolver.gate.set()
    assert await HostNames(resolver.look_up).unresolved(["d"]) == ["d"]


async def test_names_with_an_address_are_resolved() -> None:
    resolver = Resolver("a", "c")
    resolver.gate.set()
    assert await HostNames(resolver.look_up).unresolved(["a", "b", "c"]) == ["b"]
