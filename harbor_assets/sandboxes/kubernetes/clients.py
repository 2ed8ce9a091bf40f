"""The client that the sandboxes of one worker share."""

import asyncio
from typing import ClassVar

from harbor_assets.sandboxes.kubernetes.kube import Kube, from_kubeconfig, in_cluster


class Clients:
    """One client, so one connection pool, per event loop; closed when its last sandbox has stopped."""

    _held: ClassVar[dict[asyncio.AbstractEventLoop, tuple[Kube, int]]] = {}

    @classmethod
    async def take(cls) -> Kube:
        loop = asyncio.get_running_loop()
        if loop not in cls._held:
            access = in_cluster() or await asyncio.to_thread(from_kubeconfig)
            if loop not in cls._held:
                cls._held[loop] = (await Kube(access).__aenter__(), 0)
        kube, users = cls._held[loop]
        cls._held[loop] = (kube, users + 1)
        return kube

    @classmethod
    async def give_back(cls, kube: Kube) -> None:
        loop = asyncio.get_running_loop()
        held, users = cls._held.get(loop, (None, 0))
        if held is kube and users > 1:
            cls._held[loop] = (kube, users - 1)
            return
        if held is kube:
            del cls._held[loop]
        await kube.__aexit__(None, None, None)
