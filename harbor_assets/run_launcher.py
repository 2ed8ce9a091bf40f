"""The run launchers: Terminate in the Dagster UI is a cancel of the evaluation behind the Dagster run.

Loaded at every opening of the instance, so nothing heavy of ours is imported at the top.
"""

from dagster._core.launcher.default_run_launcher import DefaultRunLauncher

from harbor_assets.cluster.launcher import ClusterRunLauncher


class LocalRunLauncher(DefaultRunLauncher):
    """The default launcher, except that a run of ours is cancelled through the catalog."""

    def terminate(self, run_id: str) -> bool:
        """Cancel the evaluation behind the Dagster run; False if it has ended."""
        run = self._instance.get_run_by_id(run_id)
        ours = run.tags.get("harbor/run_id") if run and run.job_name == "evaluate" else None
        if run is None or ours is None:
            return super().terminate(run_id)
        if run.is_finished:
            return False
        from harbor_assets.settings import Settings
        from harbor_assets.wiring import wire

        wire(Settings.load()).evaluations.cancel_run(ours)
        self._instance.report_run_canceling(run)
        return True


class DeploymentRunLauncher(ClusterRunLauncher):
    """The launcher of a deployment, except that a run of ours is cancelled in the catalog first.

    The trial workers look there when they are told to end: what they ran is then kept as cancelled.
    """

    def terminate(self, run_id: str) -> bool:
        """Cancel the evaluation behind the Dagster run; False if it has ended."""
        run = self._instance.get_run_by_id(run_id)
        ours = run.tags.get("harbor/run_id") if run and run.job_name == "evaluate" else None
        if run is None or run.is_finished:
            return False
        if ours is not None:
            from datetime import UTC, datetime

            from harbor_assets.settings import Settings
            from harbor_assets.wiring import wire

            wire(Settings.load()).catalog.request_cancel(ours, datetime.now(UTC))
        return super().terminate(run_id)
