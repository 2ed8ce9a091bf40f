"""How a sandbox is connected to the world, and how it is cut off."""

import asyncio
import os
from collections.abc import Callable

from harbor_assets.sandboxes.errors import SandboxLost
from harbor_assets.sandboxes.process import nat, net
from harbor_assets.sandboxes.process.channel import Channel
from harbor_assets.sandboxes.process.nameservers import Relay, resolver
from harbor_assets.sandboxes.process.owner import Owner
from harbor_assets.sandboxes.process.pipes import to_the_end
from harbor_assets.sandboxes.process.rights import privileged


class Connection:
    """The network of one sandbox, at first none. `namespace` is a descriptor of its network namespace; `note` takes
    sentences about what could not be done as asked."""

    def __init__(self, channel: Channel, namespace: int, owner: Owner, note: Callable[[str], None]) -> None:
        self._channel, self._namespace, self._owner, self._note = channel, namespace, owner, note
        self._link: net.Link | None = None
        self._relay: Relay | None = None
        self._used_nat = False
        self.on_host_network = False

    @property
    def translated(self) -> bool:
        """True while the sandbox has an address of its own behind NAT."""
        return self._link is not None

    async def attach(self) -> None:
        """See `Sandbox.attach_network`."""
        if self._link is not None or self.on_host_network:
            return
        if privileged():
            try:
                link = await to_the_end(asyncio.to_thread(self._attach))
            except nat.NatUnavailable as e:
                self._note(f"The public network is the machine's own, not an address behind NAT: {e}.")
            except OSError as e:
                raise SandboxLost(f"its network cannot be set up: {e}") from e
            else:
                if link.relay is not None:
                    self._relay = Relay(*link.relay, resolver().relayed)
                return
        await self._use_host_network()

    async def detach(self) -> None:
        """See `Sandbox.detach_network`."""
        await to_the_end(self._unlink())
        if self.on_host_network:
            self.on_host_network = False
            await self._channel.ask(("host-network", False))

    async def end(self) -> None:
        """Take down what is left, and put the machine back if this was the last. Never raises OSError."""
        try:
            await self._unlink()
            if self._used_nat:
                await asyncio.to_thread(nat.tidy)
        except OSError as e:
            self._note(f"The network could not be taken down: {e}. The next command tries again.")

    def _attach(self) -> net.Link:
        self._used_nat = True
        self._link = net.attach(self._namespace, self._owner, relay=bool(resolver().relayed))
        if self._link.relay_problem:
            self._note(self._link.relay_problem)
        return self._link

    async def _use_host_network(self) -> None:
        """Commands from now on run in the machine's network namespace. Init holds it only while it is in use."""
        if privileged():
            namespace = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                await self._channel.ask(("host-network", True), [namespace])
            finally:
                os.close(namespace)
        else:
            await self._channel.ask(("host-network", True))
        self.on_host_network = True

    async def _unlink(self) -> None:
        link, relay, self._link, self._relay = self._link, self._relay, None, None
        if relay is not None:
            await relay.close()
        if link is not None:
            await asyncio.to_thread(net.detach, link.name)
