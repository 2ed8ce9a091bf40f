"""`cluster reap`: the deployment's reaper at once, from an admin's machine or in one of the deployment's own pods."""

import json
from dataclasses import asdict
from typing import Any

from harbor_assets.domain.errors import Broken
from harbor_assets.interfaces.deployment.kubectl import Kubectl
from harbor_assets.settings import Settings

_POD, _CONTAINER = "deploy/harbor-assets-code", "code"  # it has the catalog, and the rights


def reap(namespace: str, context: str | None, *, dry_run: bool) -> dict[str, Any]:
    """What was removed, or with `dry_run` would be: `runs`, one each; `total`; `failed`, run id -> why.

    Raises `ServiceUnavailable` if the cluster does not answer, `Refused` if there is no such deployment or right.
    """
    settings = Settings.load()
    if settings.executor == "kubernetes":
        return _here(settings, dry_run=dry_run)
    words = ["harbor-assets", "cluster", "reap", "--json", *(["--dry-run"] if dry_run else [])]
    said = Kubectl(context)("-n", namespace, "exec", _POD, "-c", _CONTAINER, "--", *words)
    try:
        return json.loads(said)
    except ValueError as error:
        raise Broken(f"The deployment in {namespace} answered what is no JSON: {said[:200]!r}") from error


def _here(settings: Settings, *, dry_run: bool) -> dict[str, Any]:
    from harbor_assets.wiring import wire

    done = wire(settings).upkeep.reap(dry_run=dry_run)
    return {
        "dry_run": done.dry_run,
        "runs": [{"run": run_id, "why": str(why), **asdict(removed)} for run_id, (why, removed) in done.runs.items()],
        "failed": dict(done.failed),
        "total": {**asdict(done.total), "told": done.total.told},
    }
