"""Evaluations: those in experiments, and the scoring of outputs that are given (`submit`, `result`, `download`)."""

from pathlib import Path

from harbor_assets.domain.agent_eval import AgentEvalInputSpec, AgentEvalJob, AgentEvalJobInput, AgentEvalResult
from harbor_assets.domain.bundle import BUNDLE_FOLDER
from harbor_assets.interfaces.sdk.blocking import blocking
from harbor_assets.interfaces.sdk.download import download_bundle
from harbor_assets.interfaces.sdk.experiments import AsyncExperimentEvaluations, ExperimentEvaluations
from harbor_assets.interfaces.sdk.http import below, segment
from harbor_assets.interfaces.sdk.resource import named
from harbor_assets.interfaces.sdk.results import FILES


class AsyncEvaluations(AsyncExperimentEvaluations):
    """Evaluations in experiments, and of outputs by the metrics of their tasks. `workspace` None: the client's."""

    async def submit(
        self, spec: AgentEvalInputSpec, *, name: str | None = None, workspace: str | None = None
    ) -> AgentEvalJob:
        """Have given trials scored; they are when this answers. Without a name the job gets one.

        Raises `Refused` with everything that cannot be resolved or scored. A job with a target is stored, and ends in
        `error`: nothing here calls a model.
        """
        body = AgentEvalJobInput(name=name, spec=spec)
        return await self._send(AgentEvalJob, "POST", self._at(workspace, "agent-evaluate/jobs"), body)

    async def result(self, name: str, *, workspace: str | None = None) -> AgentEvalResult:
        """The aggregates and counts of an evaluation. Raises `NotFound`."""
        return await self._read(AgentEvalResult, self._result(workspace, name))

    async def download(self, name: str, output: str | Path = ".", *, workspace: str | None = None) -> Path:
        """Write its bundle to `<output>/<name>/agent-eval-results`, all of it or nothing, as the one of a run."""
        base = f"{self._result(workspace, name)}/bundle"
        files = await self._read_all(FILES, base)
        target = Path(output) / name / BUNDLE_FOLDER
        return await download_bundle(self._http, lambda path: below(base, path), files, target, None)

    def _result(self, workspace: str | None, name: str) -> str:
        return self._at(workspace, "agent-eval-results", segment(named("evaluation", name)))


class Evaluations(ExperimentEvaluations):
    """Evaluations in experiments, and of outputs by the metrics of their tasks."""

    submit = blocking(AsyncEvaluations.submit)
    result = blocking(AsyncEvaluations.result)
    download = blocking(AsyncEvaluations.download)
