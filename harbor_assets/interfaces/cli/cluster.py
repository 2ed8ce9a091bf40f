"""`harbor-assets cluster ...`: install on a Kubernetes cluster, and remove it again."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from harbor_assets.interfaces.cli.options import examples

app = typer.Typer(
    help="Install on a Kubernetes cluster, and remove it again.",
    epilog=examples("cluster install --overlay test", "cluster uninstall --overlay test --yes"),
    no_args_is_help=True,
    rich_markup_mode=None,
)
Overlay = Annotated[
    Literal["test", "dev", "production", "ack"],
    typer.Option("--overlay", help="Which arrangement: deploy/overlays/NAME.", show_default=False),
]
Namespace = Annotated[str, typer.Option("--namespace", metavar="NS", help="Namespace of the installation.")]
KubeContext = Annotated[
    str | None,
    typer.Option("--kube-context", metavar="NAME", help="Context of the kubeconfig.", show_default="the current one"),
]


def _use_kubeconfig(file: str | None) -> str | None:
    """Every program that speaks to the cluster reads this variable, kubectl included."""
    if file is not None:
        os.environ["KUBECONFIG"] = file
    return file


Kubeconfig = Annotated[
    str | None,
    typer.Option(
        "--kubeconfig", metavar="FILE", help="[default: KUBECONFIG, else ~/.kube/config]", callback=_use_kubeconfig
    ),
]


def add_to(parent: typer.Typer) -> None:
    """Hang this noun into the command line."""
    parent.add_typer(app, name="cluster")


@app.callback()
def _group() -> None:
    pass


@app.command(
    epilog=examples(
        "cluster install --overlay test",
        "cluster install --overlay dev --buildkit tcp://buildkit.example:1234 --registry registry.example/evals",
        "cluster install --overlay production --manifests ./mine --access access.toml --buildkit ... --registry ...",
    )
)
def install(
    overlay: Overlay,
    namespace: Namespace = "harbor-assets",
    kubeconfig: Kubeconfig = None,
    kube_context: KubeContext = None,
    service_image: Annotated[
        str | None, typer.Option("--service-image", metavar="IMAGE", help="Take this instead of building it.")
    ] = None,
    worker_image: Annotated[
        str | None, typer.Option("--worker-image", metavar="IMAGE", help="Take this instead of building it.")
    ] = None,
    buildkit: Annotated[
        str | None,
        typer.Option("--buildkit", metavar="ADDR", help="BuildKit that builds. [test: TEST_BUILDKIT]"),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option("--registry", metavar="PREFIX", help="Registry for what is built. [test: TEST_REGISTRY]"),
    ] = None,
    insecure_registry: Annotated[
        bool, typer.Option("--insecure-registry", help="The registry speaks plain HTTP. [test: it does]")
    ] = False,
    access: Annotated[
        Path | None,
        typer.Option("--access", metavar="FILE", help="Access file of the service: callers then need a token."),
    ] = None,
    manifests: Annotated[
        Path | None,
        typer.Option("--manifests", metavar="DIR", help="Your copy of the manifests (`cluster manifests DIR`)."),
    ] = None,
    timeout: Annotated[
        int, typer.Option("--timeout", metavar="SECONDS", min=1, help="How long to wait for everything to be ready.")
    ] = 900,
) -> None:
    """Install or upgrade: build the images where none are given, apply the manifests, wait, and print the URL.

    A wrap of `kubectl apply -k deploy/overlays/NAME`, which works by itself too. The last line is the service's URL.
    """
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.deployment.install import Options
    from harbor_assets.interfaces.deployment.install import install as run

    test = overlay == "test"
    environment = os.environ if test else {}
    options = Options(
        overlay=overlay,
        namespace=namespace,
        context=kube_context,
        service_image=service_image,
        worker_image=worker_image,
        buildkit=buildkit or environment.get("TEST_BUILDKIT"),
        registry=registry or environment.get("TEST_REGISTRY"),
        insecure_registry=insecure_registry or test,
        access=access,
        manifests=manifests,
        timeout_seconds=timeout,
    )
    out = Output()
    out.line(run(options, out.line))


@app.command(epilog=examples("cluster uninstall --overlay test --yes"))
def uninstall(
    overlay: Overlay,
    namespace: Namespace = "harbor-assets",
    kubeconfig: Kubeconfig = None,
    kube_context: KubeContext = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete the namespace, its database and all results in it.")
    ] = False,
    timeout: Annotated[
        int, typer.Option("--timeout", metavar="SECONDS", min=1, help="How long to wait until it is gone.")
    ] = 300,
) -> None:
    """Remove everything an install made, with its database and all results. Images stay in their registry."""
    from harbor_assets.domain.errors import Refused
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.deployment.install import Options
    from harbor_assets.interfaces.deployment.install import uninstall as run

    if not yes:
        raise Refused(
            f"This deletes the namespace {namespace} with its database and every result in it; say --yes to do it"
        )
    run(
        Options(overlay=overlay, namespace=namespace, context=kube_context, timeout_seconds=timeout),
        Output().line,
    )


@app.command(epilog=examples("cluster reap --dry-run", "cluster reap --json"))
def reap(
    namespace: Namespace = "harbor-assets",
    kubeconfig: Kubeconfig = None,
    kube_context: KubeContext = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what there is to delete.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Delete now what runs left in the cluster that have ended or that nobody knows, and count it.

    A deployment does this by itself, every HARBOR_ASSETS_REAP_SECONDS. Nothing younger than a minute is touched.
    """
    from harbor_assets.interfaces.cli.output import Output, counted
    from harbor_assets.interfaces.deployment.reaping import reap as run

    out = Output(json=as_json)
    done = run(namespace, kube_context, dry_run=dry_run)
    total = done["total"]
    if done["runs"]:
        kinds = ("jobs", "pods", "secrets", "configmaps", "volumes")
        rows = [[row["run"], *(str(row[kind]) for kind in kinds), row["why"]] for row in done["runs"]]
        out.table(("RUN", "JOBS", "PODS", "SECRETS", "CONFIGMAPS", "VOLUMES", "WHY"), rows)
    for run_id, said in done["failed"].items():
        out.line(f"{run_id} is left for the next look: {said}")
    verb = "To delete" if dry_run else "Deleted"
    objects = counted(total["told"], "object")
    out.line(f"{verb}: {objects} of {counted(len(done['runs']), 'run')}; {total['left']} Jobs and pods were there")
    if as_json:
        out.document(done)
    if done["failed"]:
        raise typer.Exit(1)


@app.command(epilog=examples("cluster migrate"))
def migrate(
    wait_seconds: Annotated[
        int, typer.Option("--wait-seconds", metavar="N", min=0, help="How long to wait for the database.")
    ] = 60,
) -> None:
    """Bring the databases that the settings name up to date. A deployment's pods do this before they start."""
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.deployment.migrate import migrate as run

    run(Output().line, wait_seconds)


@app.command(epilog=examples("cluster context service ./build"))
def context(
    image: Annotated[Literal["service", "worker"], typer.Argument(help="Which image.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that is made.")],
    artifacts_url: Annotated[
        str, typer.Option("--artifacts-url", metavar="URL", help="Object store of the deployment, for its driver.")
    ] = "",
) -> None:
    """Write the build context of one of the two images, for a builder of your own."""
    from harbor_assets.artifacts.drivers import driver_of
    from harbor_assets.domain.errors import Refused
    from harbor_assets.interfaces.cli.output import Output, command
    from harbor_assets.interfaces.deployment.source import write_context

    if folder.exists():
        raise Refused(f"{folder} is there already; name a folder that can be made")
    driver = driver_of(artifacts_url)
    digest = write_context(image, folder, [driver] if driver else [])
    out = Output()
    out.line(f"Wrote {folder}; its content is {digest[:12]}")
    out.line(f"Build it, then: {command('cluster', 'install', '--overlay', 'dev')} --{image}-image IMAGE ...")


@app.command(epilog=examples("cluster manifests ./mine"))
def manifests(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that is made.")],
) -> None:
    """Copy the manifests to a folder, to fill in and change: what is yours to say is marked "yours"."""
    from harbor_assets.interfaces.cli.output import Output, command
    from harbor_assets.interfaces.deployment.source import copy_manifests

    copy_manifests(folder)
    out = Output()
    out.line(f'Wrote {folder}; look for "yours" in {folder}/overlays and {folder}/profiles')
    out.line(f"Then: {command('cluster', 'install', '--overlay', 'production', '--manifests', str(folder))} ...")
