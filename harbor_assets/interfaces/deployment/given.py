"""What an install is given: an access file, and what overlays leave to their admin."""

from collections.abc import Sequence
from pathlib import Path

from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.interfaces.deployment import manifests
from harbor_assets.interfaces.deployment.kubectl import Kubectl
from harbor_assets.interfaces.deployment.manifests import Object


def access_file(path: Path | None) -> str | None:
    """The text of an access file that a pod can use. Raises `Refused`."""
    if path is None:
        return None
    from harbor_assets.access import read_access

    if local := [issuer.jwks for issuer in read_access(path).issuers if "://" not in issuer.jwks]:
        raise Refused(f"The access file {path} takes keys from {local[0]}, which no pod has; write the URL of the keys")
    return path.read_text(encoding="utf-8")


def check_given(kubectl: Kubectl, namespace: str, objects: Sequence[Object], *, guarded: bool, hint: str) -> None:
    """Raises `Refused` with everything that an overlay leaves to its admin and that is not there.

    `guarded`: there is an access file; `hint`: how to fill in what is missing.
    """
    problems = [Problem(where, "is yours to fill in") for where in manifests.unfilled(objects)]
    env = manifests.environment(objects)
    name = manifests.DATABASE
    external = not manifests.has(objects, "Deployment", manifests.POSTGRES)
    if external and not manifests.has(objects, "Secret", name):
        found = (kubectl.get("secret", name, "-n", namespace) or {}).get("data", {})
        problems += [
            Problem(
                f"Secret {name}: {key}",
                "is missing; make it with: "
                f"kubectl -n {namespace} create secret generic {name} --from-env-file=FILE, and delete the file",
            )
            for key in manifests.EXTERNAL_KEYS
            if key not in found
        ]
    if external and kubectl.get("deployment", manifests.POSTGRES, "-n", namespace) is not None:
        problems.append(
            Problem(
                f"namespace {namespace}",
                "has a database of its own, by another overlay, and what is in it would be left behind; install into "
                "another namespace",
            )
        )
    if env.get("HARBOR_ASSETS_ACCESS") and not guarded:
        problems.append(
            Problem("--access", f"names no access file, and there is no Secret {manifests.ACCESS}; see docs/access.md")
        )
    if problems:
        raise Refused(f"The overlay lacks what its admin has to give; {hint}:", problems)
