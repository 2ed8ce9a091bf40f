"""A trial: what became of it, every try, what the agent did, what the verifier said, and what all of it rests on."""

from fastapi import APIRouter, Request, Response

from harbor_assets.engine.evidence import TRAJECTORY
from harbor_assets.engine.trial_evidence import Excerpt, TrialEvidence
from harbor_assets.interfaces.web.records import marks_of
from harbor_assets.interfaces.web.site import Site
from harbor_assets.interfaces.web.steps import Steps, first_of

# What people ask for first, in this order; a heading each.
_VERIFIER = (
    ("What the tests printed", "verifier/test-stdout.txt"),
    ("What the tests printed as errors", "verifier/test-stderr.txt"),
    ("Rewards as the verifier wrote them", "verifier/reward.json"),
    ("The reward as the verifier wrote it", "verifier/reward.txt"),
)
_LOGS = (
    ("The exception that ended the trial", "exception.txt"),
    ("Output of the reference solution", "agent/oracle.txt"),
    ("Output of the agent's installation", "agent/setup/stdout.txt"),
    ("Harbor's log of the trial", "trial.log"),
)


def trial_routes(site: Site) -> APIRouter:
    """`/runs/{run_id}/tasks/{index}/trials/{k}`."""
    router = APIRouter()

    @router.get("/runs/{run_id}/tasks/{index:int}/trials/{k:int}")
    def show_trial(request: Request, run_id: str, index: int, k: int) -> Response:
        run = site.run(run_id)
        trial = site.backend.evaluations.results.trial(run, index, k)
        trace = site.backend.evaluations.results.trace(run.plan.workspace, run.id, index, k) if trial.row else None
        folders = list(trial.folders())
        own = folders[-1] if folders and trial.row and folders[-1].path == trial.row.evidence else None
        indexes = [task.index for task in run.plan.tasks]
        place = indexes.index(index)
        return site.page(
            request,
            "trial.html.j2",
            workspace=run.plan.workspace,
            plan=run.plan,
            run_phase=run.phase,
            trial=trial,
            task=trial.task,
            row=trial.row,
            k=k,
            before=indexes[place - 1] if place else None,
            after=indexes[place + 1] if place + 1 < len(indexes) else None,
            verifier=_excerpts(trial, _VERIFIER),
            logs=_excerpts(trial, _LOGS),
            trace=Steps(trace.spans, first_of(request.query_params)) if trace and len(trace.spans) > 1 else None,
            unread=bool(own) and any(file.path == TRAJECTORY and file.size for file in own.files) if own else False,
            trajectory_path=TRAJECTORY,
            unreadable=trace.unreadable if trace else (),
            steps_know=bool(trace) and any(span.usage.known for span in trace.spans),
            folders=folders,
            marks=[
                mark
                for found in marks_of(site, run.plan.workspace, [run.id, trial.task.ref]).values()
                for mark in found
            ],
        )

    return router


def _excerpts(trial: TrialEvidence, wanted: tuple[tuple[str, str], ...]) -> list[tuple[str, Excerpt]]:
    found = ((title, trial.excerpt(path)) for title, path in wanted)
    return [(title, excerpt) for title, excerpt in found if excerpt and excerpt.size]
