"""Sandbox profiles: what an admin allows and sets for sandboxes. Copied into a run's plan at submit."""

from typing import Annotated, Any

from pydantic import Field

from harbor_assets.domain.outcomes import Frozen

DISK_MAX_MB = 128 * 1024  # the seed's default ceiling for --storage-mb


class Requests(Frozen):
    """What a sandbox asks of the scheduler, as Kubernetes quantities; None: as much as its limit."""

    cpu: str | None = None
    memory: str | None = None


class SandboxProfile(Frozen):
    """One profile. Ceilings in cores and megabytes, None for none; times in seconds.

    `hosts` are the names a sandbox may reach while the agent runs and is graded (`*` first label as a wildcard;
    exactly `("*",)` is public), `install_hosts` those open only while the agent installs itself.
    """

    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    description: str = ""
    hosts: tuple[str, ...] = ()
    install_hosts: tuple[str, ...] = ()
    max_cpus: Annotated[float, Field(gt=0)] | None = None
    max_memory_mb: Annotated[int, Field(gt=0)] | None = None
    max_storage_mb: Annotated[int, Field(gt=0)] | None = None
    max_disk_mb: int = Field(default=DISK_MAX_MB, gt=0)
    requests: Requests = Requests()
    runtime_class: str | None = None
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()
    image_pull_secrets: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    pod_overrides: dict[str, Any] = {}
    gpu_resource: str = "nvidia.com/gpu"
    max_lifetime_seconds: int = Field(default=24 * 3600, gt=0)
    start_grace_seconds: int = Field(default=60, gt=0)
