"""A run: how far it has come, what became of its trials, its files and its log."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from harbor_assets.domain.errors import NotFound
from harbor_assets.domain.outcomes import Outcome
from harbor_assets.domain.phases import ResultState
from harbor_assets.domain.runs import Run
from harbor_assets.domain.text import quoted
from harbor_assets.domain.views import BundleFile, TaskView
from harbor_assets.engine.evaluations import RunPicture
from harbor_assets.engine.results import check_path
from harbor_assets.interfaces.web.downloads import own, untrusted
from harbor_assets.interfaces.web.site import Leaf, Site, page_number
from harbor_assets.report.formats import K_SHOWN, segments

TASKS_PAGE = 200  # rows of a page: more take a browser's time, and nobody reads them
FILES_PAGE = 500
LOG_BYTES = 64 * 1024  # of a log at once, its end first


def run_routes(site: Site) -> APIRouter:
    """`/runs/{run_id}`, its files and its log."""
    router = APIRouter()
    evaluations = site.backend.evaluations

    @router.get("/runs/{run_id}")
    def show_run(request: Request, run_id: str) -> Response:
        run = site.run(run_id)
        picture = evaluations.picture(run)
        query = request.query_params
        tasks = list(_chosen(picture.status.tasks, query.get("q", ""), query.get("state", "")))
        number = page_number(query)
        begin = (number - 1) * TASKS_PAGE
        account = picture.account() if picture.rows else None
        return site.page(
            request,
            "run.html.j2",
            workspace=run.plan.workspace,
            run=picture.status.run,
            marks=picture.status.marks,
            plan=run.plan,
            account=account,
            segments=segments(account.counts, picture.status.run.n_trials) if account else [],
            ks=[k for k in K_SHOWN if k <= run.plan.n_attempts],
            states=_states(picture),
            tasks=tasks[begin : begin + TASKS_PAGE],
            found=len(tasks),
            pages=Leaf(number, TASKS_PAGE, len(tasks)),
            has_report=run.phase.terminal and run.result_state is not ResultState.FAILED,
            dagster_runs=_dagster_runs(site.dagster(), run),
        )

    @router.get("/runs/{run_id}/files/")
    @router.get("/runs/{run_id}/files/{path:path}")
    def show_file(request: Request, run_id: str, path: str = "") -> Response:
        run = site.run(run_id)
        if path and not path.endswith("/"):
            check_path(path)
            if path.startswith("evidence/"):
                return untrusted(path, evaluations.results.open_evidence(run, path))
            return own(path, evaluations.results.open_bundle_file(run.plan.workspace, run.id, path))
        found = _below(evaluations.results.bundle_files(run.plan.workspace, run.id), path)
        number = page_number(request.query_params)
        entries = sorted(found, key=lambda entry: (not entry.folder, entry.name))
        if path and not entries:
            raise NotFound(f"The bundle of {run.id} has no folder {quoted(path)}")
        begin = (number - 1) * FILES_PAGE
        return site.page(
            request,
            "files.html.j2",
            workspace=run.plan.workspace,
            run_id=run.id,
            path=path,
            above=path.rstrip("/").rpartition("/")[0],
            entries=entries[begin : begin + FILES_PAGE],
            total=sum(entry.size for entry in entries),
            pages=Leaf(number, FILES_PAGE, len(entries)),
        )

    @router.get("/runs/{run_id}/log")
    def show_log(request: Request, run_id: str) -> Response:
        run = site.run(run_id)
        query = request.query_params
        task = _number(query.get("task"))
        if "task" in query and task is None:
            raise NotFound(f"{quoted(query['task'])} is not the index of a task")
        offset = _number(query.get("offset"))
        first = evaluations.logs(run.plan.workspace, run.id, task=task)
        size = first.size if first.size is not None else len(first.text.encode())
        begin = max(0, size - LOG_BYTES) if offset is None else min(offset, size)
        chunk = evaluations.logs(run.plan.workspace, run.id, task=task, offset=begin) if begin else first
        data = chunk.text.encode("utf-8", "surrogatepass")[:LOG_BYTES]
        return site.page(
            request,
            "log.html.j2",
            workspace=run.plan.workspace,
            run_id=run.id,
            task=None if task is None else run.plan.task(task),
            text=data.decode("utf-8", "ignore"),
            begin=begin,
            end=begin + len(data),
            size=max(size, begin + len(data)),
            earlier=max(0, begin - LOG_BYTES) if begin else None,
            later=begin + len(data) if begin + len(data) < size else None,
            done=run.phase.terminal,
            waiting=chunk.waiting,
        )

    return router


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a folder, or a folder in it with the size of all below."""

    name: str
    size: int
    folder: bool


def _below(files: Iterator[BundleFile], path: str) -> Sequence[Entry]:
    """What stands directly in a folder (`path` is empty or ends with a slash)."""
    found: dict[tuple[str, bool], int] = {}
    for file in files:
        if file.path.startswith(path):
            name, slash, _ = file.path[len(path) :].partition("/")
            found[name, bool(slash)] = found.get((name, bool(slash)), 0) + file.size
    return [Entry(name, size, folder) for (name, folder), size in found.items()]


def _chosen(tasks: Sequence[TaskView], text: str, state: str) -> Iterator[TaskView]:
    """The tasks whose name holds `text`, in a state: an outcome of one of their trials, or a phase, or `working`."""
    wanted = text.casefold().split()
    for task in tasks:
        name = f"{task.task} {task.native_task_id}".casefold()
        if all(word in name for word in wanted) and (not state or state in states_of(task)):
            yield task


def states_of(task: TaskView) -> set[str]:
    """The states that a task can be asked for by."""
    found = {trial.outcome for trial in task.outcomes}
    if task.running:
        found.add("working")
    if task.waiting:
        found.add("waiting")
    if len(task.outcomes) < task.n_trials:
        found.add("open")
    return found


def _states(picture: RunPicture) -> list[tuple[str, int]]:
    """Every state with the number of tasks in it, those that nobody is in left out."""
    order = [*(outcome.value for outcome in Outcome), "working", "waiting", "open"]
    counts = dict.fromkeys(order, 0)
    for task in picture.status.tasks:
        for state in states_of(task):
            counts[state] += 1
    return [(state, count) for state, count in counts.items() if count]


def _dagster_runs(dagster: str | None, run: Run) -> str | None:
    """The Dagster runs of an evaluation run, where its UI is known."""
    return f"{dagster.rstrip('/')}/runs?{urlencode({'q[0]': f'tag:harbor/run_id={run.id}'})}" if dagster else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 18 else None
