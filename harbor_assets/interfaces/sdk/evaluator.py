"""What the SDK offers, by subject, over one connection: for plain code and for asynchronous code."""

import os
from functools import cached_property
from types import TracebackType
from typing import Self

from harbor_assets.engine.recovery import Recovered
from harbor_assets.interfaces.sdk.client import Client
from harbor_assets.interfaces.sdk.connection import AsyncClient, Connection
from harbor_assets.interfaces.sdk.evaluations import AsyncEvaluations, Evaluations
from harbor_assets.interfaces.sdk.experiments import AsyncExperiments, Experiments
from harbor_assets.interfaces.sdk.images import AsyncImages, Images
from harbor_assets.interfaces.sdk.leaderboard import AsyncBoard, Board
from harbor_assets.interfaces.sdk.lineage import AsyncLineages, Lineages
from harbor_assets.interfaces.sdk.marks import AsyncMarks, Marks
from harbor_assets.interfaces.sdk.metrics import AsyncMetrics, Metrics
from harbor_assets.interfaces.sdk.publishing import Publishing
from harbor_assets.interfaces.sdk.runs import AsyncRuns, Runs
from harbor_assets.interfaces.sdk.tasks import AsyncTasks, Tasks
from harbor_assets.interfaces.sdk.tasksets import AsyncTasksets, Tasksets


class _OverConnection[C: Connection]:
    """What both kinds of evaluator are: a connection of the kind that the class names."""

    _kind: type[C]

    def __init__(
        self,
        base_url: str | None = None,
        *,
        workspace: str | None = None,
        token: str | None = None,
        home: str | os.PathLike[str] | None = None,
    ) -> None:
        """`base_url`: a service elsewhere, `http://HOST:PORT`. `home`: another home than the one of the settings.

        `workspace` None: HARBOR_ASSETS_WORKSPACE, else "default". `token` None: HARBOR_ASSETS_TOKEN. Raises `Refused`
        for values that cannot be used, `HomeUnusable`; whether a service answers, the first call finds out.
        """
        self._client = self._kind(base_url, workspace=workspace, token=token, home=home)

    @classmethod
    def from_client(cls, client: C) -> Self:
        """Over a connection that exists. Whoever made that closes it."""
        evaluator = cls.__new__(cls)
        evaluator._client = client
        return evaluator

    @classmethod
    def from_config(cls, *, workspace: str | None = None) -> Self:
        """On what the command line talks to: the context in use, else the home of this machine."""
        return cls.from_client(cls._kind.from_config(workspace=workspace))

    @property
    def client(self) -> C:
        """The connection."""
        return self._client

    @property
    def workspace(self) -> str:
        """The workspace of calls that name none."""
        return self._client.workspace

    @property
    def base_url(self) -> str | None:
        """Where the service is; None in process."""
        return self._client.base_url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url or 'in process'}, workspace={self.workspace!r})"


class Evaluator(_OverConnection[Client]):
    """Tasks, tasksets, metrics and runs, for plain code; use it in a `with` block, or `close` it.

    Without `base_url` it works on the home of this machine, in this process: no server is needed. Calls of several
    threads wait for each other.
    """

    _kind = Client

    @cached_property
    def tasks(self) -> Tasks:
        """Definitions of units of evaluation."""
        return Tasks(self._client.loop, AsyncTasks(self._client.twin))

    @cached_property
    def tasksets(self) -> Tasksets:
        """Named groups of pinned tasks."""
        return Tasksets(self._client.loop, AsyncTasksets(self._client.twin))

    @cached_property
    def marks(self) -> Marks:
        """What is known of tasks and runs beside their scores."""
        return Marks(self._client.loop, AsyncMarks(self._client.twin))

    @cached_property
    def metrics(self) -> Metrics:
        """What scores outputs."""
        return Metrics(self._client.loop, AsyncMetrics(self._client.twin))

    @cached_property
    def runs(self) -> Runs:
        """Runs of tasksets, and what they gave."""
        return Runs(self._client.loop, AsyncRuns(self._client.twin))

    @cached_property
    def experiments(self) -> Experiments:
        """Containers of evaluations, each a leaderboard."""
        return Experiments(self._client.loop, AsyncExperiments(self._client.twin))

    @cached_property
    def evaluations(self) -> Evaluations:
        """Evaluations in experiments with their sessions, and the scoring of outputs that are given."""
        return Evaluations(self._client.loop, AsyncEvaluations(self._client.twin))

    @cached_property
    def images(self) -> Images:
        """Images of the tasks of tasksets."""
        return Images(self._client.loop, AsyncImages(self._client.twin))

    @cached_property
    def leaderboard(self) -> Board:
        """Ended runs, the best mean first."""
        return Board(self._client.loop, AsyncBoard(self._client.twin))

    @cached_property
    def lineage(self) -> Lineages:
        """What numbers were made of, and what things were made into."""
        return Lineages(self._client.loop, AsyncLineages(self._client.twin))

    @cached_property
    def publishing(self) -> Publishing:
        """The port of the engine's publisher."""
        return Publishing(self._client)

    def recover(self) -> Recovered:
        """Let runs that lost their worker go on, and say which could not. A service does this by itself: none, then."""
        return self._client.service.recover()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Wait for calls under way, then close the connection."""
        self._client.close()


class AsyncEvaluator(_OverConnection[AsyncClient]):
    """Tasks, tasksets, metrics and runs, for asynchronous code; use it in an `async with` block, or `aclose` it.

    Arguments as of `Evaluator`. Opening a home reads and writes a few files.
    """

    _kind = AsyncClient

    @cached_property
    def tasks(self) -> AsyncTasks:
        """Definitions of units of evaluation."""
        return AsyncTasks(self._client)

    @cached_property
    def tasksets(self) -> AsyncTasksets:
        """Named groups of pinned tasks."""
        return AsyncTasksets(self._client)

    @cached_property
    def marks(self) -> AsyncMarks:
        """What is known of tasks and runs beside their scores."""
        return AsyncMarks(self._client)

    @cached_property
    def metrics(self) -> AsyncMetrics:
        """What scores outputs."""
        return AsyncMetrics(self._client)

    @cached_property
    def runs(self) -> AsyncRuns:
        """Runs of tasksets, and what they gave."""
        return AsyncRuns(self._client)

    @cached_property
    def experiments(self) -> AsyncExperiments:
        """Containers of evaluations, each a leaderboard."""
        return AsyncExperiments(self._client)

    @cached_property
    def evaluations(self) -> AsyncEvaluations:
        """Evaluations in experiments with their sessions, and the scoring of outputs that are given."""
        return AsyncEvaluations(self._client)

    @cached_property
    def images(self) -> AsyncImages:
        """Images of the tasks of tasksets."""
        return AsyncImages(self._client)

    @cached_property
    def leaderboard(self) -> AsyncBoard:
        """Ended runs, the best mean first."""
        return AsyncBoard(self._client)

    @cached_property
    def lineage(self) -> AsyncLineages:
        """What numbers were made of, and what things were made into."""
        return AsyncLineages(self._client)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._client.aclose()
