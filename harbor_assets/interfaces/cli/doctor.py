"""`harbor-assets doctor`: what is wrong, and what to do about it."""

from typing import TYPE_CHECKING, Annotated

import typer

from harbor_assets.interfaces.cli.options import Json, examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harbor_assets.interfaces.doctor.findings import Finding
    from harbor_assets.settings import Settings


def add_to(parent: typer.Typer) -> None:
    """Hang this command into the command line."""
    shown = examples("doctor", "doctor --namespace harbor-assets", "doctor --base-url http://10.0.0.7:30080 --json")
    parent.command(epilog=shown)(doctor)


def doctor(
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="Look at this service, as a client of it.")
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", metavar="NS", help="Look at the cluster, and at what is installed in NS."),
    ] = None,
    kube_context: Annotated[
        str | None, typer.Option("--kube-context", metavar="NAME", help="Context of the kubeconfig.")
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", metavar="IMAGE", help="Image with Python for the two pods that probe the network."),
    ] = None,
    json: Json = False,
) -> None:
    """Look at this machine, a service or a cluster, and say what to fix: one line for each check.

    With --namespace two small pods look around in the cluster for some seconds; nothing of them is left, also if
    this is interrupted. The exit code is 0 if nothing fails, 1 if something does.
    """
    from dataclasses import asdict

    from harbor_assets.domain.errors import Refused
    from harbor_assets.interfaces.cli.output import Output, one_line

    if base_url and namespace:
        raise Refused("--base-url looks at a service and --namespace at a cluster; give one of the two")
    if (kube_context or image) and not namespace:
        raise Refused("--kube-context and --image are about a cluster; name a namespace of it with --namespace")
    out = Output(json=json)
    found: list[Finding] = []
    for finding in _findings(base_url, namespace, kube_context, image):
        found.append(finding)
        out.line(f"{finding.status:<4}  {finding.check}: {one_line(finding.said)}")
        if finding.fix:
            out.line(f"      {one_line(finding.fix)}")
    good = not any(finding.status == "fail" for finding in found)
    if json:
        out.document({"ok": good, "checks": [asdict(finding) for finding in found]})
    raise typer.Exit(0 if good else 1)


def _findings(
    base_url: str | None, namespace: str | None, context: str | None, image: str | None
) -> "Iterator[Finding]":
    from harbor_assets.settings import Settings

    settings = Settings.load()
    if base_url:
        from harbor_assets.interfaces.doctor import service

        return service.look(base_url, settings)
    if namespace:
        return _cluster(settings, namespace, context, image)
    from harbor_assets.interfaces.doctor import machine

    return machine.look(settings)


def _cluster(settings: "Settings", namespace: str, context: str | None, image: str | None) -> "Iterator[Finding]":
    from harbor_assets.domain.errors import Refused
    from harbor_assets.interfaces.deployment.kubectl import Kubectl
    from harbor_assets.interfaces.deployment.manifests import check_name
    from harbor_assets.interfaces.doctor.cluster import ClusterDoctor
    from harbor_assets.interfaces.doctor.findings import fail

    check_name(namespace)
    try:
        kubectl = Kubectl(context)
    except Refused as refused:
        yield fail("kubectl", str(refused))
        return
    yield from ClusterDoctor(kubectl, namespace, image, settings.as_environ()).look()
