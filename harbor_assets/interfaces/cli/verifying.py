"""`tasksets verify`: run oracle and nop on a taskset, follow both, and tell which tasks can be trusted."""

import signal
from dataclasses import dataclass, replace
from functools import partial

from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.marks import Verdict
from harbor_assets.domain.plans import NOP, ORACLE
from harbor_assets.domain.requests import RunRequest, TaskSelection
from harbor_assets.domain.verification import Verification
from harbor_assets.interfaces.cli import source
from harbor_assets.interfaces.cli.asked import Asked
from harbor_assets.interfaces.cli.edge import INTERRUPTED
from harbor_assets.interfaces.cli.output import Output, command, counted, note
from harbor_assets.interfaces.cli.preflight import check_stored
from harbor_assets.interfaces.cli.progress import follow
from harbor_assets.interfaces.cli.session import Session, open_session
from harbor_assets.interfaces.cli.signals import remembered
from harbor_assets.interfaces.cli.submit import send_once

UNDECIDED = "undecided"
KEPT_SHOWN = 5  # tasks whose newer mark stays, by name; the rest is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifying:
    """What `tasksets verify` was told. `runs`: two runs to judge by, in place of new ones."""

    choice: source.Choice
    asked: Asked
    runs: str | None = None

    def run(self, workspace: str | None, base_url: str | None, out: Output) -> int:
        """Do it. Returns the exit code: 0 if every task is good, 3 if some are, 4 if none is."""
        given = None if self.runs is None else _two(self.runs)
        with open_session(workspace, base_url) as session:
            if given:
                _check(session, self.choice.taskset or "", given)
            oracle, nop, interrupted = (*given, False) if given else self._start(session, out)
            if not interrupted:
                try:
                    for run_id in (oracle, nop):
                        follow(session, run_id, out)
                except KeyboardInterrupt:
                    interrupted = True
            if interrupted:
                note(f"\nStopped waiting; {oracle} and {nop} go on. Judge the tasks when they have ended with:")
                note(f"  {self._later(session, oracle, nop)}")
                return INTERRUPTED
            found = session.evaluator.marks.judge(oracle, nop)
            if out.json:
                out.document(found.model_dump(mode="json"))
            else:
                _print(session, found, out)
        return 0 if found.good == len(found.tasks) else 3 if found.good else 4

    def _start(self, session: Session, out: Output) -> tuple[str, str, bool]:
        """The two runs' ids, and whether the person wants to wait for them no longer."""
        chosen = source.choose(session, self.choice)
        assert chosen.taskset is not None  # there is a REF, and no suite
        names = None if chosen.all_taken else [task.stored_name for task in chosen.tasks]
        selection = TaskSelection(taskset=chosen.taskset.ref, select=names)
        started: list[str] = []
        with remembered(signal.SIGINT) as interrupted:  # both must be known, and said
            for agent in (ORACLE, NOP):
                wanted = self._of(agent).read()
                check_stored(session, selection, wanted)
                request: RunRequest = wanted.request(selection, [])
                run = send_once(session, partial(session.evaluator.runs.submit_request, request), None).run
                out.line(
                    f"Run {run.id} accepted: {agent}, {counted(run.n_trials, 'trial')}, in the sandbox {run.sandbox}"
                )
                started.append(run.id)
            return started[0], started[1], interrupted()

    def _of(self, agent: str) -> Asked:
        return replace(self.asked, agent=agent)

    def _later(self, session: Session, oracle: str, nop: str) -> str:
        ref = self.choice.taskset or ""
        return command("tasksets", "verify", ref, "--runs", f"{oracle},{nop}", *session.own_words())


def _two(text: str) -> tuple[str, str]:
    words = [word.strip() for word in text.split(",")]
    if len(words) != 2 or not all(words):
        raise Refused(f"--runs '{text[:80]}' is not two run ids; write that of oracle, a comma, and that of nop")
    return words[0], words[1]


def _check(session: Session, ref: str, given: tuple[str, str]) -> None:
    """Refuse runs that are not of this taskset, or not of these agents, before anything is waited for. A taskset that
    is named without a digest may have been another revision when the runs were submitted."""
    taskset = session.evaluator.tasksets.retrieve(ref)
    problems: list[Problem] = []
    for run_id, agent in zip(given, (ORACLE, NOP), strict=True):
        run = session.evaluator.runs.retrieve(run_id)
        same = run.taskset_ref == taskset.ref
        if not same and "#" not in ref:
            same = run.taskset_ref.partition("#")[0] == taskset.ref.partition("#")[0]
        if not same:
            problems.append(Problem(run_id, f"ran {run.taskset_ref}, not {taskset.ref}; name that taskset"))
        elif run.regrade_of is not None:
            problems.append(Problem(run_id, f"verified again what {run.regrade_of} had kept; no agent ran in it"))
        elif run.agent != agent:
            problems.append(Problem(run_id, f"ran the agent '{run.agent}', not {agent}"))
    if problems:
        raise Refused("The tasks cannot be judged by these runs:", problems)


def _print(session: Session, found: Verification, out: Output) -> None:
    rows = [
        (
            str(task.index),
            task.task,
            task.verdict or UNDECIDED,
            f"{task.oracle.passed}/{task.oracle.planned}",
            f"{task.nop.passed}/{task.nop.planned}",
            "" if task.verdict is Verdict.GOOD else task.why,
        )
        for task in found.tasks
    ]
    out.table(("INDEX", "TASK", "VERDICT", "ORACLE", "NOP", "WHY"), rows)
    out.line(f"\n{found.good} of {counted(len(found.tasks), 'task')} good, of {found.taskset_ref}")
    for agent, run_id in ((ORACLE, found.oracle_run), (NOP, found.nop_run)):
        out.line(f"{agent}: {command('runs', 'results', run_id, *session.own_words())}")
    if kept := [task for task in found.tasks if task.newer_runs]:
        named = ", ".join(task.task for task in kept[:KEPT_SHOWN]) + (", …" if len(kept) > KEPT_SHOWN else "")
        runs = ", ".join(dict.fromkeys(run_id for task in kept for run_id in task.newer_runs))
        out.line(f"Not marked: {counted(len(kept), 'task')} ({named}), marked by runs that are newer ({runs})")
    undecided = [str(task.index) for task in found.tasks if task.verdict is None]
    if undecided:
        words = ("tasksets", "verify", found.taskset_ref, "--tasks", ",".join(undecided), *session.own_words())
        out.line(f"Undecided ones are not marked. Once what was in the way is gone: {command(*words)}")
