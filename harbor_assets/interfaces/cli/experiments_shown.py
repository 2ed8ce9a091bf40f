"""What the commands of `experiments` and `evaluations` do and print."""

import re
from collections.abc import Sequence

from harbor_assets.domain.errors import Conflict, NotFound
from harbor_assets.domain.experiments import Evaluation, Experiment, StoredSession
from harbor_assets.domain.marks import Touched
from harbor_assets.domain.names import Ref
from harbor_assets.domain.plans import RUN_ID
from harbor_assets.domain.rollups import Aggregate
from harbor_assets.domain.views import Pagination
from harbor_assets.interfaces.cli.catalog import Listing, ask, deleted, listed, named
from harbor_assets.interfaces.cli.marks_shown import print_warnings
from harbor_assets.interfaces.cli.output import Output, command, counted, duration, moment, note, score
from harbor_assets.interfaces.cli.records_shown import print_facts
from harbor_assets.interfaces.cli.report import STALE, envelope, print_place
from harbor_assets.interfaces.cli.session import Session

RUNS_NAMED = 5  # in a warning
COLUMNS_MAX = 3  # evaluators that get a column each; --json has all
_FIRST = "harbor_reward."  # the evaluators of Harbor's own rewards
_UNKNOWN = "-"
_RULE = (
    "Here a case without a result counts as 0 in an evaluator's mean; the mean over scored trials is in "
    "'harbor-assets runs results RUN_ID'. Cost, time and tokens are means per case; +: known for some cases only."
)


def create(
    session: Session, name: str, out: Output, *, exist_ok: bool, description: str | None, default_sort: str
) -> None:
    """Create an experiment; with `exist_ok` one that is there is as good."""
    ref = named(session, name)
    experiments, made = session.evaluator.experiments, True
    try:
        found = experiments.create(
            ref.name, description=description, default_sort=default_sort, workspace=ref.workspace
        )
    except Conflict as error:
        if not exist_ok:
            raise Conflict(f"{error}. To go on with the one that is there: --exist-ok") from None
        found, made = experiments.retrieve(ref.name, workspace=ref.workspace), False
    if out.json:
        out.document({**found.model_dump(mode="json"), "created": made})
    else:
        out.line(f"{'Created' if made else 'Unchanged'} experiment {found.workspace}/{found.name}")
        words = command("runs", "submit", "--experiment", found.name, *session.own_words())
        out.line(f"To publish a run to it: {words} ...")


def list_experiments(session: Session, asked: Listing, out: Output) -> None:
    """A page of experiments, one a line."""
    page = session.evaluator.experiments.list(
        page=asked.page, page_size=asked.page_size, sort=asked.sort, filter=asked.filter
    )
    if listed(session, page, "experiments", asked, out, [one.model_dump(mode="json") for one in page.data]):
        return
    rows = [
        (one.name, str(one.evaluation_count), moment(one.created_at), moment(one.updated_at), one.description or "")
        for one in page.data
    ]
    out.table(("NAME", "EVALUATIONS", "CREATED", "UPDATED", "DESCRIPTION"), rows)
    print_place(page.pagination, "experiments")


def show(session: Session, name: str, out: Output, *, sort: str | None, page: int, page_size: int) -> None:
    """An experiment with a page of its evaluations."""
    ref = named(session, name)
    found = session.evaluator.experiments.retrieve(ref.name, workspace=ref.workspace)
    rows = session.evaluator.evaluations.list(
        filter={"experiment_id": found.id},
        sort=sort or found.default_sort,
        page=page,
        page_size=page_size,
        workspace=ref.workspace,
    )
    if out.json:
        evaluations = envelope([one.model_dump(mode="json") for one in rows.data], rows.pagination)
        told = [one.model_dump(mode="json") for one in touched(session, rows.data, ref.workspace)]
        out.document({**found.model_dump(mode="json"), "evaluations": evaluations, "touched": told})
        return
    _print_experiment(found, out)
    if not rows.data:
        if rows.pagination.total_results:
            note(f"Page {page} is after the last one, {rows.pagination.total_pages}")
            return
        words = command("runs", "submit", "--experiment", found.name, *session.own_words())
        note(f"There are no evaluations in it yet. To publish a run to it: {words} ...")
        return
    out.line()
    _print_evaluations(rows.data, rows.pagination, out, touched(session, rows.data, ref.workspace))


def delete(session: Session, name: str, out: Output, *, yes: bool) -> None:
    """Delete an experiment, after asking. Warns of runs that go on in it."""
    ref = named(session, name)
    _warn_of_runs(session, ref)
    if not yes:
        found = session.evaluator.experiments.retrieve(ref.name, workspace=ref.workspace)
        n = counted(found.evaluation_count, "evaluation")
        ask(session, "experiments", ref, f"Delete the experiment {ref.bare}, and of its {n} those in no other?")
    session.evaluator.experiments.delete(ref.name, workspace=ref.workspace)
    deleted("experiments", ref, out)


def _warn_of_runs(session: Session, ref: Ref) -> None:
    active = session.evaluator.runs.list(active=True, page_size=1000, workspace=ref.workspace)
    going_on = [run.id for run in active if run.publication and run.publication.experiment == ref.name]
    if not going_on:
        return
    named_runs = ", ".join(going_on[:RUNS_NAMED]) + (" and others" if len(going_on) > RUNS_NAMED else "")
    own = session.own_words()
    make, publish = command("experiments", "create", ref.bare, *own), command("runs", "publish", going_on[0], *own)
    go = "goes" if len(going_on) == 1 else "go"
    note(
        f"Warning: in {ref.bare} {counted(len(going_on), 'run')} {go} on: {named_runs}; without it the trials are "
        f"published nowhere. To have them later: {make}, and when the run has ended: {publish}"
    )


# --- evaluations --------------------------------------------------------------------------------------------------


def list_evaluations(
    session: Session,
    out: Output,
    *,
    experiment: str | None,
    filter: str | None,
    sort: str,
    page: int,
    page_size: int,
) -> None:
    """A page of evaluations, one a line."""
    found = session.evaluator.evaluations.list(
        experiment=experiment, filter=filter, sort=sort, page=page, page_size=page_size
    )
    asked = Listing(filter=filter or experiment, sort="created_at", page=page, page_size=page_size)
    told = touched(session, found.data, session.workspace)
    by_run = {one.run_id: one for one in told}
    documents: list[object] = [
        {**one.model_dump(mode="json"), **_marked(by_run.get(_run_of(one)))} for one in found.data
    ]
    if not listed(session, found, "evaluations", asked, out, documents):
        _print_evaluations(found.data, found.pagination, out, told)


def show_evaluation(session: Session, name: str, out: Output, *, page: int, page_size: int) -> None:
    """An evaluation with a page of its sessions."""
    ref = named(session, name)
    evaluations = session.evaluator.evaluations
    found = evaluations.retrieve(ref.name, workspace=ref.workspace)
    sessions = evaluations.list_sessions(ref.name, page=page, page_size=page_size, workspace=ref.workspace)
    if out.json:
        rows = envelope([one.model_dump(mode="json") for one in sessions.data], sessions.pagination)
        told = [one.model_dump(mode="json") for one in touched(session, [found], ref.workspace)]
        out.document({**found.model_dump(mode="json"), "sessions": rows, "touched": told})
        return
    told = touched(session, [found], ref.workspace)
    _print_evaluation(found, out, stale=any(one.stale for one in told))
    print_touched(told, out)
    if sessions.data:
        out.line()
        _print_sessions(sessions.data, sessions.pagination, out)
    else:
        note("It has no sessions yet: a trial appears when it has ended")


def pin(session: Session, name: str, out: Output, *, pinned: bool) -> None:
    """Pin an evaluation, or not."""
    ref = named(session, name)
    evaluations = session.evaluator.evaluations
    found = (evaluations.pin if pinned else evaluations.unpin)(ref.name, workspace=ref.workspace)
    if out.json:
        out.document(found.model_dump(mode="json"))
    else:
        out.line(f"{'Pinned' if pinned else 'Unpinned'} evaluation {found.workspace}/{found.name}")


def delete_evaluation(session: Session, name: str, out: Output, *, yes: bool) -> None:
    """Delete an evaluation, after asking."""
    ref = named(session, name)
    if not yes:
        found = session.evaluator.evaluations.retrieve(ref.name, workspace=ref.workspace)
        n = counted(found.run_count, "session")
        ask(session, "evaluations", ref, f"Delete the evaluation {ref.bare} with its {n}?")
    session.evaluator.evaluations.delete(ref.name, workspace=ref.workspace)
    deleted("evaluations", ref, out)


# --- marks --------------------------------------------------------------------------------------------------------


def touched(session: Session, found: Sequence[Evaluation], workspace: str) -> Sequence[Touched]:
    """Which of the evaluations' runs rest on something marked. A service of an earlier version says nothing."""
    runs = [run_id for one in found if re.match(RUN_ID, run_id := _run_of(one))]
    try:
        return session.evaluator.marks.touching(runs, workspace=workspace) if runs else ()
    except NotFound:
        return ()


def _run_of(one: Evaluation) -> str:
    """The run that an evaluation shows, or nothing."""
    return one.metadata.get("run_id", "")


def _marked(one: Touched | None) -> dict[str, object]:
    """`stale` and `marks` of an evaluation, as runs have them in JSON."""
    if one is None:
        return {"stale": False, "marks": []}
    return {"stale": one.stale, "marks": [mark.model_dump(mode="json") for mark in one.marks]}


def print_touched(found: Sequence[Touched], out: Output) -> None:
    """What is said of them, each mark once."""
    print_warnings({(mark.subject, mark.kind): mark for one in found for mark in one.marks}.values(), out)


# --- tables -------------------------------------------------------------------------------------------------------


def _print_experiment(found: Experiment, out: Output) -> None:
    print_facts(
        [
            ("Experiment", f"{found.workspace}/{found.name}"),
            ("Id", found.id),
            ("Description", found.description or ""),
            ("Summary", found.summary or ""),
            ("Baseline", found.baseline_evaluation_name or ""),
            ("Metadata", _metadata(found.metadata or {})),
            ("Created", f"{moment(found.created_at)}{f' by {found.created_by}' if found.created_by else ''}"),
            ("Evaluations", str(found.evaluation_count)),
        ],
        out,
    )


def _print_evaluation(found: Evaluation, out: Output, *, stale: bool) -> None:
    version = f"@{found.dataset_version}" if found.dataset_version else ""
    print_facts(
        [
            ("Evaluation", f"{found.workspace}/{found.name}"),
            ("Id", found.id),
            ("Dataset", f"{found.dataset_name}{version}"),
            ("Agent", _agents(found)),
            ("Model", ", ".join(found.model_names)),
            ("Status", found.status or ""),
            ("Root cause", found.root_cause or ""),
            ("Description", found.description or ""),
            ("Source", found.source_link or ""),
            ("Metadata", _metadata(found.metadata)),
            ("Pinned", moment(found.pinned_at) if found.pinned_at else ""),
            ("Created", f"{moment(found.created_at)}{f' by {found.created_by}' if found.created_by else ''}"),
            ("Sessions", f"{found.run_count} of {counted(found.test_case_count, 'test case')}"),
        ],
        out,
    )
    figures = [(name, each, score) for name, each in found.aggregate_scores.items()]
    figures += [
        (name, each, shown)
        for name, each, shown in (
            ("cost_usd", found.cost_usd, _dollars),
            ("latency_ms", found.latency_ms, _milliseconds),
            ("tokens", found.tokens, _tokens),
        )
        if each is not None
    ]
    if figures:
        out.line()
        rows = [
            (
                f"{name}{STALE if stale else ''}",
                *(shown(value) for value in (each.mean, each.median, each.p90, each.min, each.max)),
                f"{each.count}/{found.test_case_count}",
                str(each.failed_count) if each.failed_count else _UNKNOWN,
            )
            for name, each, shown in figures
        ]
        out.table(("FIGURE", "MEAN", "MEDIAN", "P90", "MIN", "MAX", "CASES", "FAILED"), rows)


def _print_evaluations(found: Sequence[Evaluation], at: Pagination, out: Output, told: Sequence[Touched] = ()) -> None:
    stale = {one.run_id for one in told if one.stale}
    evaluators = _columns(found)
    apart = any(len({_count(one, name) for name in evaluators}) > 1 for one in found)
    headers = ("NAME", "AGENT", "MODEL", *(_short(name, evaluators) for name in evaluators), "CASES", "SESSIONS",
               "COST/CASE", "TIME/CASE", "TOKENS/CASE", "DATASET", "CREATED")  # fmt: skip
    rows = [
        (
            f"{one.name}{' (pinned)' if one.pinned_at else ''}{STALE if _run_of(one) in stale else ''}",
            _agents(one) or _UNKNOWN,
            ", ".join(one.model_names) or _UNKNOWN,
            *(
                score(_mean(one.aggregate_scores.get(name)))
                + (f" ({_over(one, name)})" if apart and name in one.aggregate_scores else "")
                for name in evaluators
            ),
            _over(one, evaluators[0]) if evaluators and not apart else str(one.test_case_count),
            str(one.run_count),
            _dollars(_mean(one.cost_usd)) + _some(one, one.cost_usd),
            _milliseconds(_mean(one.latency_ms)) + _some(one, one.latency_ms),
            _tokens(_mean(one.tokens)) + _some(one, one.tokens),
            one.dataset_name,
            moment(one.created_at),
        )
        for one in found
    ]
    out.table(headers, rows)
    out.line(_RULE)
    hidden = {name for one in found for name in one.aggregate_scores} - set(evaluators)
    if hidden:
        note(f"{counted(len(hidden), 'more evaluator')}; --json has all")
    print_touched(told, out)
    print_place(at, "evaluations")


def _print_sessions(found: Sequence[StoredSession], at: Pagination, out: Output) -> None:
    names = _preferred({name for one in found for name in one.evaluator_scores})
    rows = [
        (
            one.test_case_name or _UNKNOWN,
            *(score(one.evaluator_scores.get(name)) for name in names),
            one.error_type or one.status.value,
            _dollars(one.cost_usd),
            _milliseconds(one.latency_ms),
            _tokens(one.tokens),
            str(one.span_count),
            one.session_id,
        )
        for one in found
    ]
    headers = ("TEST CASE", *(_short(name, names) for name in names), "STATUS", "COST", "TIME", "TOKENS", "SPANS")
    out.table((*headers, "SESSION"), rows)
    print_place(at, "sessions")


def _columns(found: Sequence[Evaluation]) -> list[str]:
    return _preferred({name for one in found for name in one.aggregate_scores})


def _preferred(names: set[str]) -> list[str]:
    return sorted(names, key=lambda name: (not name.startswith(_FIRST), name))[:COLUMNS_MAX]


def _short(name: str, among: Sequence[str]) -> str:
    """The last part of an evaluator's name, where no other column has the same."""
    last = name.rpartition(".")[2]
    return (last if sum(each.rpartition(".")[2] == last for each in among) == 1 else name).upper()


def _count(one: Evaluation, evaluator: str) -> int:
    figure = one.aggregate_scores.get(evaluator)
    return figure.count if figure else 0


def _over(one: Evaluation, evaluator: str) -> str:
    """How many test cases have a value of the evaluator, of how many there are."""
    return f"{_count(one, evaluator)}/{one.test_case_count}"


def _some(one: Evaluation, figure: Aggregate | None) -> str:
    """Marks a figure that only some test cases know, as the leaderboard does."""
    return "+" if figure is not None and figure.mean is not None and figure.count < one.test_case_count else ""


def _agents(found: Evaluation) -> str:
    versions = [version for version in found.agent_versions if version != "unknown"]
    return " ".join([", ".join(found.agent_names), *([", ".join(versions)] if versions else [])])


def _metadata(metadata: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in metadata.items())


def _mean(figure: Aggregate | None) -> float | None:
    return figure.mean if figure is not None else None


def _dollars(value: float | None) -> str:
    return _UNKNOWN if value is None else f"${value:.4f}" if value < 1 else f"${value:,.2f}"


def _milliseconds(value: float | None) -> str:
    return _UNKNOWN if value is None else duration(value / 1000)


def _tokens(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:,.0f}"
