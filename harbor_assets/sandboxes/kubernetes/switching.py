"""Puts a sandbox into a network mode, and proves from inside that it is in force before anything of the task runs."""

import asyncio
import os
import socket
import time
from collections.abc import Mapping

from harbor_assets.domain.profiles import NetworkPolicy, SandboxProfile
from harbor_assets.sandboxes.errors import ControlPlaneError, SandboxStartError
from harbor_assets.sandboxes.kubernetes import network, passes, runner
from harbor_assets.sandboxes.kubernetes.kube import StreamBroken
from harbor_assets.sandboxes.kubernetes.manifests import FOLDER, LABEL_NETWORK
from harbor_assets.sandboxes.kubernetes.pod import SandboxPod
from harbor_assets.sandboxes.kubernetes.proxy import secret
from harbor_assets.sandboxes.record import Record

PROVE_SECONDS = 20  # for a mode to be in force; the slowest seen took one second
_TRIES = 5  # of a proof whose stream broke
_FAILED = {  # the exit codes of inside/switch.sh
    3: "an address that is to be closed answers; does the cluster's network plugin enforce NetworkPolicies, and are "
    "those of this project installed in the namespace, with the addresses of its nodes?",
    4: "the address that is to be open does not answer",
    5: "the image has no program that can prove it (bash with /dev/tcp)",
    6: "connections of the phase before cannot be ended",
    7: "processes of the phase before cannot be ended",
}

_UNPREPARED = {
    runner.NOT_WRITTEN: "our scripts cannot be written into the sandbox, which takes sh, cat, head, tail, wc and chmod",
    runner.NOT_PREPARED: "the folders of a trial cannot be made",
}


class NetworkSwitch:
    """The network of one sandbox: what it may reach, as proven, and the variables by which programs find the way out.

    `until`: of the monotonic clock, how long a pass for the egress proxy may be needed. What was done is in `record`.
    """

    def __init__(self, namespace: str, profile: SandboxProfile, record: Record, *, until: float) -> None:
        self.variables: Mapping[str, str] = {}
        self._namespace, self._profile, self._record, self._until = namespace, profile, record, until
        self._policy = NetworkPolicy()
        self._reach: network.Reach | None = None  # as proven
        self._asked = False  # a wider reach was asked for: it is made when the next command needs it
        self._phase: network.Phase = "install"
        self._installed = False  # the installation has just ended, and what it left is still there
        self._egress: str | None = None
        self._addresses: dict[str, str] = {}  # "api" and "dns", as the cluster wrote them into the pod
        self._lock = asyncio.Lock()

    async def prepare(self, policy: NetworkPolicy) -> network.Label:
        """The label that a pod under this policy is born with. Raises SandboxStartError if it cannot be had here."""
        reach = self._reach_of(policy)
        if reach.proxied:
            self._egress = await self._find_egress()
        return reach.label

    async def begin(self, box: SandboxPod, policy: NetworkPolicy, *folders: str) -> None:
        """Prepare a fresh pod and put it under a policy, all in one stream. `folders`: shell commands that make them.

        Raises as `ask_for` does; SandboxStartError too if that cannot be done.
        """
        self._policy = policy
        await self._switch(box, runner.preparation(*folders))

    async def ask_for(self, box: SandboxPod, policy: NetworkPolicy) -> None:
        """Put the sandbox under a policy: a narrower one is in force when this returns, a wider one when the next
        command needs it, since Harbor goes back to the task's own policy between two phases in which nothing runs.

        Raises SandboxStartError if it cannot be proven; SandboxLost and its kin; ControlPlaneError.
        """
        self._policy = policy
        if self._reach is not None and not self._installed and network.wider(self._reach_of(policy), self._reach):
            self._asked = True
            return
        await self._switch(box)

    def end_installation(self) -> None:
        """The agent has installed itself: before the next command its hosts are closed, and what it left ends."""
        if self._phase == "install":
            self._phase, self._installed = "run", True

    async def settle(self, box: SandboxPod) -> None:
        """Before a command: make what was asked for. Raises as `ask_for` does."""
        if self._installed or self._asked:
            await self._switch(box)

    def _reach_of(self, policy: NetworkPolicy) -> network.Reach:
        return network.reach(policy, self._profile, self._phase)

    async def _switch(self, box: SandboxPod, first: tuple[str, bytes] | None = None) -> None:
        async with self._lock:
            policy = self._policy
            before, after, installed = self._reach, self._reach_of(policy), self._installed
            self._asked = False
            if after == before and not installed:
                return
            if after.proxied and self._egress is None:
                self._egress = await self._find_egress()
            if before is not None and before.label != after.label:
                await box.label(LABEL_NETWORK, after.label)
            began = time.monotonic()
            await self._prove(box, before, after, installed, first)
            self.variables = self._proxy_variables(box, after)
            self._reach, self._installed = after, False
        how = after.label if not after.hosts else f"{after.label}: {', '.join(after.hosts)}"
        self._record.add_network(policy.mode, how)
        self._record.count(proof_milliseconds=round((time.monotonic() - began) * 1000))

    async def _prove(
        self,
        box: SandboxPod,
        before: network.Reach | None,
        after: network.Reach,
        installed: bool,
        first: tuple[str, bytes] | None,
    ) -> None:
        node = (box.state or {}).get("status", {}).get("hostIP")
        shown = network.proof(before, after, egress=self._egress, node=node, installed=installed)
        words = [self._addresses.get(word, word) for word in (shown.allowed, *shown.denied)]
        command = ["bash", f"{FOLDER}/switch", str(PROVE_SECONDS), shown.end, *words]
        stdin = None
        if first:
            command, stdin = ["sh", "-c", f'{first[0]}exec "$@"', "sh", *command], first[1]
        for attempt in range(_TRIES):
            out, words_of_it = bytearray(), bytearray()
            try:
                code = await box.exec(command, stdin=stdin, out=out.extend, err=words_of_it.extend, alone=True)
            except StreamBroken as problem:
                await box.ask(problem)
                await asyncio.sleep(min(2.0**attempt, 15))
                continue
            said = dict(line.split("=", 1) for line in out.decode(errors="replace").splitlines() if "=" in line)
            if code == 0:
                # as they are before anything of the task has run: it may write what it likes into /etc/resolv.conf
                self._addresses = self._addresses or {name: said[name] for name in ("api", "dns") if said.get(name)}
                return
            await box.ask(StreamBroken(f"the proof ended with {code}"))
            if code == runner.NOT_WRITTEN and attempt + 1 < _TRIES:
                continue
            if code in _UNPREPARED:
                what = words_of_it.decode(errors="replace")[-500:].strip()
                raise SandboxStartError(f"{_UNPREPARED[code]}: {what}")
            why = _FAILED.get(code, f"its proof ended with {code}")
            if said.get("at"):
                why = f"{said['at']}: {why}"
            self._record.set(network_error=f"{after.label}: {why}")
            raise SandboxStartError(f"the network mode '{after.label}' is not in force: {why}")
        raise ControlPlaneError("the network mode could not be proven: every stream to the sandbox broke")

    async def _find_egress(self) -> str:
        """The proxy's address as sandboxes reach it: they have no DNS then."""
        name = os.environ.get("HARBOR_ASSETS_EGRESS_ADDRESS") or f"{network.EGRESS}.{self._namespace}.svc"
        if secret(os.environ) is None:
            raise SandboxStartError(
                "this task may reach named hosts only, which takes the egress proxy: set "
                "HARBOR_ASSETS_EGRESS_SECRET_FILE for the worker to the secret it shares with the proxy"
            )
        try:
            found = await asyncio.get_running_loop().getaddrinfo(name, None, family=socket.AF_INET)
        except OSError as error:
            raise SandboxStartError(
                f"the egress proxy {name} cannot be found ({error}); install it, or set HARBOR_ASSETS_EGRESS_ADDRESS"
            ) from error
        return str(found[0][4][0])

    def _proxy_variables(self, box: SandboxPod, reach: network.Reach) -> Mapping[str, str]:
        key = secret(os.environ)
        if not reach.proxied or self._egress is None or key is None:
            return {}
        port = network.PORTS[reach.label]
        claims = passes.Pass(
            sandbox=box.name,
            hosts=reach.hosts,
            address=str((box.state or {}).get("status", {}).get("podIP", "")),
            port=port,
            expires=int(time.time() + max(1.0, self._until - time.monotonic())),
        )
        return dict(passes.variables(passes.sign(key, claims), self._egress, port))
