"""Options and help texts that several commands share."""

from typing import Annotated, Literal

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout; everything else on stderr.")]
RunId = Annotated[str, typer.Argument(metavar="RUN_ID", help="The run's id, as submit printed it.", show_default=False)]
FailIf = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="COND",
        help="Exit with 7 if this holds, such as 'mean<0.5'; several with commas, or given again.",
        show_default=False,
    ),
]
Workspace = Annotated[
    str | None,
    typer.Option(
        "--workspace",
        metavar="WS",
        help="Workspace of runs, and of names given without one. [default: HARBOR_ASSETS_WORKSPACE, else 'default']",
        show_default=False,
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        metavar="URL",
        help="The service to talk to. [default: the context in use, else this machine]",
        show_default=False,
    ),
]
_HARBOR_DIR = typer.Option(
    "--harbor-dir", metavar="DIR", help="A suite: a folder with one folder per Harbor task.", show_default=False
)
HarborDir = Annotated[str | None, _HARBOR_DIR]
Tasks = Annotated[
    str | None,
    typer.Option(
        "--tasks",
        metavar="LIST",
        help="Zero-based indexes or names, separated by commas; one that means two tasks is refused. Default: all.",
        show_default=False,
    ),
]
Include = Annotated[
    list[str] | None,
    typer.Option("-i", "--include", metavar="GLOB", help="Keep tasks whose name matches.", show_default=False),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("-x", "--exclude", metavar="GLOB", help="Drop tasks whose name matches.", show_default=False),
]
Limit = Annotated[
    int | None,
    typer.Option("-l", "--limit", metavar="N", help="Keep the first N of what is left.", show_default=False),
]
ImagesFor = Annotated[
    Literal["auto", "process", "docker", "podman", "kubernetes"],
    typer.Option("--sandbox", help="The sandbox whose images they are; auto as `runs submit` decides it."),
]
SkipInvalid = Annotated[
    bool, typer.Option("--skip-invalid", help="Leave broken tasks out; each is listed, and recorded in the run.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse a suite with warnings, such as unknown keys.")]
Rehash = Annotated[
    bool, typer.Option("--rehash", help="Read every file again instead of trusting sizes and times of last time.")
]
SpecFile = Annotated[
    str | None,
    typer.Option(
        "--spec-file",
        metavar="FILE",
        help="Request file (JSON, or YAML by its name) in place of the flags for agent, attempts and sandbox.",
        show_default=False,
    ),
]
Agent = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="NAME",
        help="A built-in Harbor agent: oracle or nop so far. [default: oracle]",
        show_default=False,
    ),
]
AgentEnv = Annotated[
    list[str] | None,
    typer.Option(
        "--ae",
        metavar="KEY=VALUE",
        help="A variable of the agent; '${NAME}' takes what NAME holds where trials run. A key only so. Repeatable.",
        show_default=False,
    ),
]
AgentTimeoutMultiplier = Annotated[
    float | None,
    typer.Option(
        "--agent-timeout-multiplier",
        metavar="F",
        help="Give agents F times the time that their task gives them.",
        show_default=False,
    ),
]
InfraRetries = Annotated[
    int | None,
    typer.Option(
        "--infra-retries",
        metavar="N",
        help="Try a trial whose sandbox or node was lost up to N times more, each in a new one. [default: the "
        "deployment's]",
        show_default=False,
    ),
]
MaxRetries = Annotated[
    int | None,
    typer.Option(
        "--max-retries",
        metavar="N",
        help="Try a trial that errs up to N times more, each in a new sandbox. [default: 0]",
        show_default=False,
    ),
]
MinCoverage = Annotated[
    float | None,
    typer.Option(
        "--min-coverage",
        metavar="SHARE",
        help="The share of trials that must be scored, as 0.95; results say so, and the check fails, if fewer were.",
        show_default=False,
    ),
]
NAttempts = Annotated[
    int | None,
    typer.Option(
        "-k", "--n-attempts", metavar="K", min=1, max=1000, help="Trials of each task. [default: 1]", show_default=False
    ),
]
Sandbox = Annotated[
    str | None,
    typer.Option(
        "--sandbox",
        metavar="KIND",
        help="Where: auto, process, docker, podman or kubernetes. [default: auto]",
        show_default=False,
    ),
]
SandboxProfile = Annotated[
    str | None,
    typer.Option(
        "--sandbox-profile",
        metavar="NAME",
        help="What the deployment's admin allows sandboxes. [default: the deployment's]",
        show_default=False,
    ),
]
NConcurrent = Annotated[
    int | None,
    typer.Option(
        "-n",
        "--n-concurrent",
        metavar="N",
        min=1,
        max=1000,
        help="Trials at the same time. Default: HARBOR_ASSETS_N_CONCURRENT, else 4.",
    ),
]
Cpus = Annotated[
    float | None, typer.Option("--cpus", metavar="CORES", help="Cores of the agent's sandbox, not the task's.")
]
MemoryMb = Annotated[int | None, typer.Option("--memory-mb", metavar="MB", help="Memory of the agent's sandbox.")]
StorageMb = Annotated[int | None, typer.Option("--storage-mb", metavar="MB", help="Disk of the agent's sandbox.")]
NodeSelector = Annotated[
    list[str] | None,
    typer.Option(
        "--node-selector",
        metavar="KEY=VALUE",
        help="Only nodes with this label, of those keys that the profile leaves open. Repeatable.",
        show_default=False,
    ),
]
Tolerations = Annotated[
    list[str] | None,
    typer.Option(
        "--toleration",
        metavar="KEY[=VALUE][:EFFECT]",
        help="Nodes with this taint, too, of those keys that the profile leaves open. Repeatable.",
        show_default=False,
    ),
]
NoDelete = Annotated[
    bool,
    typer.Option(
        "--no-delete",
        help="Keep each sandbox's pod for an hour after its trial, to look at it. A deployment's only.",
    ),
]
KeepSeconds = Annotated[
    int | None,
    typer.Option("--keep-seconds", metavar="N", help="As --no-delete, for N seconds.", show_default=False),
]
Experiment = Annotated[
    str | None,
    typer.Option(
        "--experiment",
        metavar="NAME",
        help="Publish the trials to this Experiment, each as it ends; in place of the request file's publication.",
        show_default=False,
    ),
]
IntakeDataset = Annotated[
    str | None,
    typer.Option(
        "--intake-dataset",
        metavar="NAME[@VERSION]",
        help="With --taskset and --experiment: the dataset that stands in the Experiment. "
        "[default: the taskset's name and digest]",
        show_default=False,
    ),
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        metavar="KEY",
        help="The same key and request twice is one run; another request with it is refused.",
        show_default=False,
    ),
]

Filter = Annotated[
    str | None,
    typer.Option(
        "--filter",
        metavar="FILTER",
        help="""What must hold, as text (kind:"harbor" AND metadata["suite"]:"geo") or as a JSON object.""",
        show_default=False,
    ),
]
Sort = Annotated[
    Literal["created_at", "-created_at", "updated_at", "-updated_at", "name", "-name"],
    typer.Option("--sort", help="The order; with - descending."),
]
Page = Annotated[int, typer.Option("--page", metavar="N", min=1, help="Which page.")]
PageSize = Annotated[int, typer.Option("--page-size", metavar="N", min=1, max=1000, help="Entries on a page.")]
BodyFile = Annotated[
    str,
    typer.Option(
        "--file",
        metavar="FILE",
        help="The body as JSON, or YAML by its name; - reads stdin, either of both.",
        show_default=False,
    ),
]
Project = Annotated[
    str | None, typer.Option("--project", metavar="NAME", help="A project to put it under.", show_default=False)
]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")]


def examples(*lines: str) -> str:
    """The end of a command's help: command lines to copy; one that names the program itself stands as it is."""
    whole = (line if "harbor-assets " in line else f"harbor-assets {line}" for line in lines)
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in whole)
