"""The public Python interface of harbor-assets (docs/sdk.md).

::

    from harbor_assets.sdk import Evaluator, read_bundle

    with Evaluator() as evaluator:  # this machine's home; Evaluator("http://HOST:PORT") for a service
        for task in evaluator.tasks.list(metadata={"suite": "geography"}):
            print(task.ref)
        run = evaluator.runs.submit("my-suite", agent="oracle").run
        print(evaluator.runs.wait(run.id).phase)
        print(evaluator.runs.results(run.id).account.policies.scored_only.mean)

    bundle = read_bundle("run-0123456789abcdef/agent-eval-results")

Importing this module costs nothing: the names are loaded when the first of them is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harbor_assets.interfaces.sdk.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    from harbor_assets.interfaces.sdk import public

    if name == "__all__":
        return public.__all__
    if name not in public.__all__:
        raise AttributeError(f"harbor_assets.sdk has no '{name}'")
    return getattr(public, name)


def __dir__() -> list[str]:
    return sorted(__getattr__("__all__"))
