"""Every setting: its name, what it is for, how it is read and what it is if nobody set it."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_assets.settings.parsing import (
    WEBHOOK_EVENTS,
    artifacts_url,
    buildkit,
    catalog_url,
    executor,
    folder,
    hosts,
    image,
    mirrors,
    namespace,
    optional_file,
    owner,
    pod_fields,
    prefix,
    seconds,
    switch,
    token,
    variables,
    webhook_events,
    webhook_format,
    webhook_url,
    whole,
    workspace,
)

PREFIX = "HARBOR_ASSETS_"

# Kept equal to domain/plans.py by a test: importing that builds pydantic models, which `--help` cannot afford.
_RUN_TIMEOUT_SECONDS = 24 * 3600
_RUN_TIMEOUT_MAX_SECONDS = 72 * 3600
_CONCURRENCY = 4
_CONCURRENCY_MAX = 1000
_RETRIES_MAX = 100
INFRA_RETRIES = 2

_CANCEL_POLL_SECONDS = 0.3  # a cancel is seen within "seconds"; one small query each time
_WATCH_POLL_SECONDS = 0.2  # a person notices no delay; the watcher looks less often where a look is dear
PARTITIONS_KEPT = 5000  # a page of an asset loads all keys: 1.5 s for these, 3 to 5 for 20,000 (docs/performance.md)
MAX_CONCURRENT = 20  # task Jobs of one run at once, on a cluster
QUEUE_TIMEOUT_SECONDS = 48 * 3600  # how long a run may wait for its first slot
SETTLE_SECONDS = 5.0  # an ended run is merged within a moment; looking costs two small queries
REAP_SECONDS = 60.0  # leftovers of ended runs are rare, and finding them lists the whole namespace
_WEBHOOK_TIMEOUT_SECONDS = 10.0
_POLL_RANGE = (0.01, 60.0)  # below, a poll is a busy loop; above, "within seconds" is not kept


@dataclass(frozen=True, slots=True)
class Variable:
    """One setting. `default` is told the values of the settings before it."""

    field: str
    help: str
    parse: Callable[[str], Any]
    default: Callable[[Mapping[str, Any]], Any]
    secret: bool = False  # never shown, and not handed to other processes

    @property
    def name(self) -> str:
        return PREFIX + self.field.upper()


def _user(_: Mapping[str, Any]) -> str:
    import getpass  # imports termios and more: only where no owner is set

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without an entry in passwd, as in many containers
        return f"uid-{os.getuid()}"


VARIABLES: tuple[Variable, ...] = (
    Variable(
        "home",
        "folder of the catalog, the artifacts, logs and scratch space",
        folder,
        lambda _: Path("~/.harbor-assets").expanduser().absolute(),
    ),
    Variable("workspace", "workspace of names given without one", workspace, lambda _: "default"),
    Variable("owner", "who submits; `runs list --mine` shows this owner's runs", owner, _user),
    Variable(
        "catalog_url",
        "database of tasks, tasksets and runs: sqlite:///<file> or postgresql+psycopg://...",
        catalog_url,
        lambda values: f"sqlite:///{values['home'] / 'catalog.db'}",
    ),
    Variable(
        "artifacts_url",
        "where archives, trial folders and bundles lie: a folder, or a URL such as s3://bucket/prefix",
        artifacts_url,
        lambda values: str(values["home"] / "artifacts"),
    ),
    Variable(
        "leaderboard",
        "the store of results: its DuckDB files lie in the folder of this name with `.d` behind it; on a deployment on "
        "the volume that its programs share",
        folder,
        lambda values: values["home"] / "leaderboard.duckdb",
    ),
    Variable(
        "run_timeout_seconds",
        "time budget of a run, counted from its first slot",
        whole(1, _RUN_TIMEOUT_MAX_SECONDS),
        lambda _: _RUN_TIMEOUT_SECONDS,
    ),
    Variable("n_concurrent", "trials of a run at the same time", whole(1, _CONCURRENCY_MAX), lambda _: _CONCURRENCY),
    Variable(
        "infra_retries",
        "how often a trial is tried again that was lost with its sandbox or node; a request may ask for another number",
        whole(0, _RETRIES_MAX),
        lambda _: INFRA_RETRIES,
    ),
    Variable(
        "cancel_poll_seconds",
        "how often a worker looks whether its run was cancelled",
        seconds(*_POLL_RANGE),
        lambda _: _CANCEL_POLL_SECONDS,
    ),
    Variable(
        "partitions_kept",
        "partitions of runs that Dagster's pages show; those of older runs are retired, their history is kept",
        whole(100, 1_000_000),
        lambda _: PARTITIONS_KEPT,
    ),
    Variable(
        "watch_poll_seconds",
        "how often --watch and --wait look at the run",
        seconds(*_POLL_RANGE),
        lambda _: _WATCH_POLL_SECONDS,
    ),
    Variable("debug", "1: an error is printed with the place it comes from", switch, lambda _: False),
    Variable("executor", "where trials run: local, or kubernetes (a deployment)", executor, lambda _: "local"),
    Variable("namespace", "Kubernetes namespace of a run's Jobs and pods", namespace, lambda _: "harbor-assets"),
    Variable("worker_image", "image of run workers and task Jobs on a cluster", image, lambda _: ""),
    Variable(
        "worker_pods",
        "pod fields of run workers and task Jobs, as JSON: nodeSelector, tolerations, imagePullSecrets, ...",
        pod_fields,
        lambda _: "",
    ),
    Variable(
        "max_concurrent",
        "task Jobs of one run at once on a cluster; a request may ask for fewer",
        whole(1, _CONCURRENCY_MAX),
        lambda _: MAX_CONCURRENT,
    ),
    Variable(
        "queue_timeout_seconds",
        "how long a run on a cluster may wait for its first slot before it expires",
        whole(1, 30 * 24 * 3600),
        lambda _: QUEUE_TIMEOUT_SECONDS,
    ),
    Variable(
        "settle_seconds",
        "how often a deployment looks after its active runs",
        seconds(1.0, 600.0),
        lambda _: SETTLE_SECONDS,
    ),
    Variable(
        "reap_seconds",
        "how often a deployment looks for what ended runs left in the cluster",
        seconds(1.0, 3600.0),
        lambda _: REAP_SECONDS,
    ),
    Variable(
        "profiles",
        "folder of a deployment's sandbox profiles (*.yaml)",
        folder,
        lambda _: Path("/etc/harbor-assets/profiles"),
    ),
    Variable(
        "benchmarks",
        "folder of scheduled benchmarks: NAME.yaml or NAME/defs.yaml (docs/schedules.md)",
        folder,
        lambda values: values["home"] / "benchmarks",
    ),
    Variable("buildkit", "BuildKit that builds images: tcp://host:port or unix:///path", buildkit, lambda _: ""),
    Variable("registry", "registry and folder for built images, as registry.example.org/evals", prefix, lambda _: ""),
    Variable("insecure_registries", "registries spoken to over plain HTTP, by commas", hosts, lambda _: ""),
    Variable(
        "registry_mirrors",
        "registries asked in place of others, by commas: docker.io=mirror.example.org",
        mirrors,
        lambda _: "",
    ),
    Variable(
        "mirror_images",
        "1: images that tasks name are copied into the registry for built images, and run from there",
        switch,
        lambda _: False,
    ),
    Variable("docker_config", "docker config.json with registries' credentials", optional_file, lambda _: ""),
    Variable(
        "trial_variables",
        "names that `${NAME}` in task.toml or --ae may use on a cluster, by commas: variables that workers are given",
        variables,
        lambda _: "",
    ),
    Variable(
        "access",
        "access file of `serve`: which tokens may do what in which workspaces; empty: nobody is asked who they are",
        optional_file,
        lambda _: "",
    ),
    Variable(
        "webhook_url",
        "webhook that is told of ended runs (docs/notifications.md); empty: nobody is",
        webhook_url,
        lambda _: "",
        secret=True,
    ),
    Variable("webhook_format", "what the webhook reads: generic or slack", webhook_format, lambda _: "generic"),
    Variable(
        "webhook_events",
        "what the webhook is told, by commas: ended, failed, regressed",
        webhook_events,
        lambda _: ",".join(WEBHOOK_EVENTS),
    ),
    Variable(
        "webhook_timeout_seconds",
        "how long the webhook may take to answer",
        seconds(0.1, 60.0),
        lambda _: _WEBHOOK_TIMEOUT_SECONDS,
    ),
    Variable("token", "token that commands show to a service", token, lambda _: "", secret=True),
    Variable("context", "saved service that commands talk to, by name; local: this home", str, lambda _: ""),
    Variable(
        "allow_remote",
        "1: `serve` may listen on addresses that others reach without an access file: all may do all",
        switch,
        lambda _: False,
    ),
)
