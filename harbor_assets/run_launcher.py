"""The run launcher of a home: Terminate in the Dagster UI reaches a worker that the UI did not start.

Loaded at every opening of the instance, so it imports nothing of ours at the top.
"""

from dagster._core.launcher.default_run_launcher import DefaultRunLauncher


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
