"""Experiments: the list of them, one with its evaluations and their trade-offs, one evaluation with its sessions."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from harbor_assets.domain.errors import Broken, Malformed, NotFound, Refused
from harbor_assets.domain.evaluation_lists import EVALUATION_FIELDS, IN_MEMORY_MAX, read_sort
from harbor_assets.domain.experiments import Evaluation, Experiment, StoredSession
from harbor_assets.domain.filters import Operator, condition
from harbor_assets.domain.marks import Mark, each_once, stale
from harbor_assets.domain.tasks import Sort
from harbor_assets.interfaces.web.leaderboard import MARKS_SHOWN
from harbor_assets.interfaces.web.plot import Plot, Point
from harbor_assets.interfaces.web.site import Leaf, Links, Site, page_number
from harbor_assets.interfaces.web.steps import Steps, first_of

EVALUATIONS_PAGE = 200  # rows of a page
SESSIONS_PAGE = 200
EVALUATORS_SHOWN = 4  # columns of the table; the evaluation's own page has all
_RUN = re.compile(r"run-[0-9a-f]{16}")
# The plot of an experiment that says nothing of its own: what it costs against what it is worth.
_COST = "cost_usd.mean"


def experiment_routes(site: Site) -> APIRouter:
    """`/experiments/{workspace}/{name}`, `/evaluations/{workspace}/{name}` and `/sessions/{workspace}/{id}`."""
    router = APIRouter()
    catalog = site.backend.experiments

    @router.get("/experiments")
    def list_experiments(request: Request) -> Response:
        workspace = site.workspace(request)
        found = catalog.list_experiments(
            workspace, page=page_number(request.query_params), page_size=EVALUATIONS_PAGE, sort=Sort.UPDATED_DOWN
        )
        pages = Leaf(found.page, EVALUATIONS_PAGE, found.total)
        return site.page(
            request, "experiments.html.j2", workspace=workspace, experiments=found.items, pages=pages, total=found.total
        )

    @router.get("/experiments/{workspace}/{name}")
    def show_experiment(request: Request, workspace: str, name: str) -> Response:
        site.need(workspace)
        experiment = catalog.get_experiment(workspace, name)
        query = request.query_params
        sort = _sort(query.get("sort", ""), experiment)
        where = condition(
            "experiment_id", "", Operator.EQ, experiment.id, fields=EVALUATION_FIELDS, workspace=workspace
        )
        # All of them at once: the plot shows every one, and a sort by figures looks at every one too.
        found = catalog.list_evaluations(workspace, page_size=IN_MEMORY_MAX, sort=sort, where=where)
        chosen = [each for each in found.items if _answers(each, query)]
        number = page_number(query)
        x, y = _axes(experiment, found.items)
        shown = chosen[(number - 1) * EVALUATIONS_PAGE : number * EVALUATIONS_PAGE]
        runs = {each.name: run_of(each) for each in shown}
        marks = _touched(site, workspace, [run for run in runs.values() if run])
        return site.page(
            request,
            "experiment.html.j2",
            workspace=workspace,
            experiment=experiment,
            evaluations=shown,
            pages=Leaf(number, EVALUATIONS_PAGE, len(chosen)),
            found=len(chosen),
            shown=len(found.items),
            total=found.total,
            evaluators=evaluators_of(found.items)[:EVALUATORS_SHOWN],
            sort=sort,
            choices=_choices(found.items),
            plot=_plot(site.links(request, workspace), chosen, x, y) if x and y else None,
            runs=runs,
            stale={run for run, said in marks.items() if stale(said)},
            told=each_once(mark for said in marks.values() for mark in said),
            marks_shown=MARKS_SHOWN,
        )

    @router.get("/evaluations/{workspace}/{name}")
    def show_evaluation(request: Request, workspace: str, name: str) -> Response:
        site.need(workspace)
        evaluation = catalog.get_evaluation(workspace, name)
        number = page_number(request.query_params)
        sessions = catalog.list_sessions(workspace, name, page=number, page_size=SESSIONS_PAGE)
        run = run_of(evaluation)
        marks = _touched(site, workspace, [run]).get(run, ()) if run else ()
        return site.page(
            request,
            "evaluation.html.j2",
            workspace=workspace,
            evaluation=evaluation,
            run=run,
            marks=marks,
            stale=stale(marks),
            sessions=sessions.items,
            trials={each.session_id: trial_of(each) for each in sessions.items},
            pages=Leaf(number, SESSIONS_PAGE, sessions.total),
        )

    @router.get("/sessions/{workspace}/{session_id}")
    def show_session(request: Request, workspace: str, session_id: str) -> Response:
        site.need(workspace)
        session = catalog.get_session(workspace, session_id)
        spans = catalog.session_spans(workspace, session_id)
        trial = trial_of(session)
        marks = _of_trial(site, workspace, trial)
        return site.page(
            request,
            "session.html.j2",
            workspace=workspace,
            session=session,
            trace=Steps(spans, first_of(request.query_params)) if len(spans) > 1 else None,
            trial=trial,
            marks=marks,
            stale=stale(marks),
        )

    return router


def evaluators_of(evaluations: Sequence[Evaluation]) -> list[str]:
    """Every evaluator with numbers, those of the most evaluations first."""
    counts: dict[str, int] = {}
    for evaluation in evaluations:
        for name in evaluation.aggregate_scores:
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: (-counts[name], name))


def run_of(evaluation: Evaluation) -> str | None:
    """The run that an evaluation shows, if it is one of ours."""
    run = evaluation.metadata.get("run_id", "")
    return run if _RUN.fullmatch(run) else None


def trial_of(session: StoredSession) -> tuple[str, int, int] | None:
    """(run, index, k) of the trial that a session shows, if it is one of ours."""
    held = session.metadata
    run, index, k = (held.get(name, "") for name in ("run_id", "task_index", "attempt"))
    whole = _RUN.fullmatch(run) and all(text.isascii() and text.isdigit() and len(text) < 10 for text in (index, k))
    return (run, int(index), int(k)) if whole else None


def _touched(site: Site, workspace: str, run_ids: Sequence[str]) -> Mapping[str, Sequence[Mark]]:
    """run id -> what is said in the workspace of it or of a task of it."""
    staleness = site.backend.staleness
    try:
        return staleness.of_run_ids(workspace, run_ids)  # reads no plan unless a task is marked
    except (NotFound, Broken):  # an evaluation may name a run that is not here
        return {each.run_id: each.marks for each in staleness.touched(workspace, run_ids)}


def _of_trial(site: Site, workspace: str, trial: tuple[str, int, int] | None) -> Sequence[Mark]:
    """What is said of a trial's run and of its own task; another task of the run touches no score of it."""
    said = _touched(site, workspace, [trial[0]]).get(trial[0], ()) if trial else ()
    if not said or trial is None:
        return ()
    mine = {trial[0]}
    if any(mark.subject != trial[0] for mark in said):
        try:
            mine |= {task.ref for task in site.run(trial[0]).plan.tasks if task.index == trial[1]}
        except NotFound:  # a session may name a run that the caller may not see
            return ()
    return [mark for mark in said if mark.subject in mine]


@dataclass(frozen=True, slots=True)
class Choices:
    """What the evaluations of a list can be chosen by."""

    agents: Sequence[str]
    models: Sequence[str]
    datasets: Sequence[str]


def _choices(evaluations: Sequence[Evaluation]) -> Choices:
    return Choices(
        agents=sorted({name for each in evaluations for name in each.agent_names}),
        models=sorted({name for each in evaluations for name in each.model_names}),
        datasets=sorted({each.dataset_name for each in evaluations}),
    )


def _answers(evaluation: Evaluation, query: Mapping[str, str]) -> bool:
    wanted = query.get("q", "").casefold().split()
    held = f"{evaluation.name} {evaluation.description or ''}".casefold()
    return (
        all(word in held for word in wanted)
        and query.get("agent", "") in ("", *evaluation.agent_names)
        and query.get("model", "") in ("", *evaluation.model_names)
        and query.get("dataset", "") in ("", evaluation.dataset_name)
    )


def _sort(asked: str, experiment: Experiment) -> str:
    """The order of a list: as asked, else the experiment's own. Raises `Malformed` for one that there is not."""
    try:
        read_sort(asked or experiment.default_sort)
    except Refused as refused:
        if asked:
            raise Malformed(str(refused)) from None
        return "-created_at"  # an experiment may name anything
    return asked or experiment.default_sort


def _axes(experiment: Experiment, evaluations: Sequence[Evaluation]) -> tuple[str | None, str | None]:
    if experiment.pareto is not None:
        return experiment.pareto.x_metric, experiment.pareto.y_metric
    first = evaluators_of(evaluations)[:1]
    return (_COST, f"evaluators.{first[0]}.mean") if first else (None, None)


def _figure(evaluation: Evaluation, metric: str) -> float | None:
    try:
        return read_sort(metric).of(evaluation) if read_sort(metric).computed else None
    except Refused:
        return None


def _plot(links: Links, evaluations: Sequence[Evaluation], x: str, y: str) -> Plot | None:
    """The figures against each other; None where no evaluation has both."""
    points = [
        Point(each.name, across, up, links.record("evaluations", f"{each.workspace}/{each.name}"))
        for each in evaluations
        if (across := _figure(each, x)) is not None and (up := _figure(each, y)) is not None
    ]
    return Plot(points, x=x, y=y) if points else None
