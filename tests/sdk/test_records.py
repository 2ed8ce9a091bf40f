"""Tasks, tasksets and metrics through the SDK, in process and served. The first tests are the code of the users'
documentation, unchanged but for its imports."""

import asyncio
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_assets.domain.metrics.bodies import bundled
from harbor_assets.interfaces.sdk.connection import Service
from harbor_assets.sdk import (
    AgentEvalInputSpec,
    AsyncClient,
    AsyncEvaluator,
    Client,
    Conflict,
    Evaluator,
    EvaluatorTaskDefinition,
    ExactMatchMetric,
    Malformed,
    MetadataItem,
    MetricRef,
    Model,
    ModelTarget,
    NotFound,
    Refused,
    TaskInput,
    TaskInputs,
    TaskRef,
    TasksetInput,
    TasksetRef,
)
from tests.interfaces.backends import World, task_input


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with Client.over(service) as made:
        yield made


@pytest.fixture
def evaluator(client: Client) -> Evaluator:
    return Evaluator.from_client(client)


def geography(instruction: str, city: str, **more: object) -> TaskInput:
    return TaskInput(
        spec=EvaluatorTaskDefinition(
            kind="evaluator",
            intent="Answer the user's geography question with the capital city.",
            inputs=TaskInputs(instruction=instruction),
            reference={"expected": city},
            metrics=[MetricRef("default/answer-exact-match")],
        ),
        metadata=[MetadataItem(key="suite", value="geography")],
        **more,  # type: ignore[arg-type]
    )


@pytest.fixture
def _match(evaluator: Evaluator) -> None:
    evaluator.metrics.create(
        "answer-exact-match",
        metric=ExactMatchMetric(reference="{{item.expected}}", candidate="{{item.output}}"),
    )


def test_the_documented_code_works_unchanged(client: Client):
    evaluator = Evaluator.from_client(client)
    tasks = evaluator.tasks
    tasksets = evaluator.tasksets
    evaluator.metrics.create(
        "answer-exact-match",
        metric=ExactMatchMetric(reference="{{item.expected}}", candidate="{{item.output}}"),
    )
    france_task, japan_task = (
        TaskInput(
            spec=EvaluatorTaskDefinition(
                kind="evaluator",
                intent="Answer the user's geography question with the capital city.",
                inputs=TaskInputs(instruction=f"What is the capital of {country}?"),
                reference={"expected": city},
                metrics=[MetricRef("default/answer-exact-match")],
            ),
            metadata=[MetadataItem(key="suite", value="geography")],
        )
        for country, city in (("France", "Paris"), ("Japan", "Tokyo"))
    )
    stored_france = tasks.create("capital-of-france", task=france_task)
    stored_japan = tasks.create("capital-of-japan", task=japan_task)
    assert stored_france.id != stored_japan.id
    assert stored_france.spec.metrics == ["default/answer-exact-match"]

    task = tasks.retrieve("capital-of-france")
    assert (task.spec.kind, task.revision, task.tags) == ("evaluator", 1, {"latest": 1})
    page = tasks.list(page=1, page_size=100, sort="-created_at")
    assert [(item.name, item.spec.kind) for item in page.data] == [
        ("capital-of-japan", "evaluator"),
        ("capital-of-france", "evaluator"),
    ]
    revised_task = TaskInput(
        spec=EvaluatorTaskDefinition(
            kind="evaluator",
            intent="Answer the user's geography question with the capital city.",
            inputs=TaskInputs(instruction="Name the capital city of France."),
            metrics=[MetricRef("default/answer-exact-match")],
        ),
        metadata=[MetadataItem(key="suite", value="geography")],
    )
    updated = tasks.replace("capital-of-france", task=revised_task)
    assert updated.revision == 2
    page = tasks.list_revisions("capital-of-france")
    assert [(revision.revision, revision.tags) for revision in page.data] == [(2, ["latest"]), (1, [])]

    page = tasks.list_revisions("capital-of-france")
    digest = next(revision.content_hash for revision in page.data if revision.revision == 1)
    original = tasks.retrieve("capital-of-france", revision=digest)
    current = tasks.retrieve("capital-of-france")
    assert original.revision == 1
    assert current.revision == 2
    assert original.spec.inputs.instruction != current.spec.inputs.instruction  # type: ignore[union-attr]
    tasks.tag("capital-of-france", tag="blessed", revision=digest)
    blessed = tasks.retrieve("capital-of-france", tag="blessed")
    assert blessed.revision == 1
    with pytest.raises(ValueError, match="give one of them"):
        tasks.retrieve("capital-of-france", tag="blessed", revision=digest)

    taskset_input = TasksetInput(
        description="Geography questions for validating the agent.",
        tasks=[
            TaskRef("default/capital-of-france"),
            TaskRef("default/capital-of-japan"),
        ],
    )
    stored_taskset = tasksets.create("geography-suite", taskset=taskset_input)
    assert stored_taskset.tasks == [updated.ref, stored_japan.ref]
    stored_taskset = tasksets.retrieve("geography-suite")
    page = tasksets.list(page=1, page_size=100, sort="name")
    assert [(item.name, len(item.tasks)) for item in page.data] == [("geography-suite", 2)]
    tasksets.replace("geography-suite", taskset=taskset_input)
    assert [revision.revision for revision in tasksets.list_revisions("geography-suite").data] == [1]

    tasks.tag("capital-of-france", tag="blessed", revision=current.digest)
    assert len(tasks.list(metadata={"suite": "geography"}).data) == 2
    page = tasks.list(kind="evaluator", metric="answer-exact-match", tag="blessed")
    assert [item.name for item in page.data] == ["capital-of-france"]
    assert len(tasks.list(intent_contains="capital CITY").data) == 2
    assert len(tasksets.list(task="capital-of-france").data) == 1
    assert len(tasksets.list(description_contains="geography").data) == 1

    input_spec = AgentEvalInputSpec(
        tasks=TasksetRef("default/geography-suite"),
        target=ModelTarget(
            model=Model(url="https://integrate.api.nvidia.com/v1", name="nvidia/nemotron-3.5-lightning-30b-a3b"),
        ),
    )
    job = evaluator.evaluations.submit(input_spec)
    assert job.status == "error"
    assert job.spec.target is not None
    assert job.spec.target.name == "nvidia/nemotron-3.5-lightning-30b-a3b"

    tasksets.delete("geography-suite")
    tasks.delete("capital-of-france")
    tasks.delete("capital-of-japan")
    evaluator.metrics.delete("answer-exact-match")
    assert tasks.list().pagination.total_results == 0


def test_the_documented_asynchronous_code_works(w: World, service: Service):
    w.publish("a", "b")

    async def main() -> list[str]:
        async with AsyncClient.over(service) as async_client:
            evaluator = AsyncEvaluator.from_client(async_client)
            page = await evaluator.tasks.list()
            again = [item.name async for item in await evaluator.tasks.list(page_size=1)]
            assert [item.name for item in page.data] == again
            await evaluator.tasksets.delete("suite")
            with pytest.raises(NotFound):
                await evaluator.tasksets.retrieve("suite")
        return again

    assert asyncio.run(main()) == ["a", "b"]


def test_a_list_is_iterated_over_from_its_page_to_the_last(w: World, evaluator: Evaluator):
    w.publish(*"abcde")
    page = evaluator.tasks.list(page_size=2, sort="name")
    assert [task.name for task in page.data] == ["a", "b"]
    assert (page.pagination.total_results, page.pagination.total_pages, page.has_next) == (5, 3, True)
    assert [task.name for task in page] == list("abcde")
    second = page.next_page()
    assert second is not None
    assert [task.name for task in second] == ["c", "d", "e"]
    assert evaluator.tasks.list(page=3, page_size=2).next_page() is None
    assert [*evaluator.tasks.list(page=9)] == []
    assert [revision.revision for revision in evaluator.tasks.list_revisions("a", page_size=1)] == [1]


@pytest.mark.usefixtures("_match")
def test_a_listed_record_is_the_record_also_with_nulls_in_it(evaluator: Evaluator):
    body = geography("Q", "Paris").model_dump(mode="json")
    body["spec"]["reference"] = {"expected": None, "more": [{"x": None}]}
    body["metadata"] = [{"key": "k", "value": None}]
    stored = evaluator.tasks.create("a", task=TaskInput.model_validate(body))
    [listed] = evaluator.tasks.list().data
    assert (listed.spec, listed.metadata, listed.ref) == (stored.spec, stored.metadata, stored.ref)


@pytest.mark.usefixtures("_match")
def test_writing_twice(evaluator: Evaluator):
    first, cut = evaluator.tasks.put("a", task=geography("Q", "Paris"))
    assert (first.revision, cut) == (1, True)
    again, cut = evaluator.tasks.put("a", task=geography("Q", "Paris", tags=["stable"]))
    assert (again.ref, again.tags, cut) == (first.ref, {"latest": 1, "stable": 1}, False)
    with pytest.raises(Conflict, match="'a' already exists"):
        evaluator.tasks.create("a", task=geography("Q", "Paris"))
    with pytest.raises(Conflict):
        evaluator.metrics.create("answer-exact-match", metric={"type": "f1", "reference": "x"})


@pytest.mark.usefixtures("_match")
def test_references_are_names_too(evaluator: Evaluator):
    task = evaluator.tasks.create("a", task=geography("Q", "Paris"), workspace="other")
    assert evaluator.tasks.retrieve(task.ref).ref == task.ref
    assert evaluator.tasks.retrieve("other/a#latest").ref == task.ref
    assert evaluator.tasks.retrieve("a", workspace="other").workspace == "other"
    with pytest.raises(NotFound):
        evaluator.tasks.retrieve("a")
    with pytest.raises(NotFound, match="nope"):
        evaluator.tasks.retrieve("other/a#nope")
    with pytest.raises(ValueError, match="give one of them"):
        evaluator.tasks.retrieve("other/a#latest", tag="latest")
    assert evaluator.metrics.retrieve("default/answer-exact-match").metric_type == "exact-match"


def test_metrics_are_listed_by_type_and_derived_ones_when_asked_for(evaluator: Evaluator):
    evaluator.metrics.create("match", metric=ExactMatchMetric(reference="{{item.x}}", description="Exact, so it is"))
    evaluator.metrics.create("overlap", metric={"type": "f1", "reference": "{{item.x}}"})
    inline = evaluator.metrics.list(metric_type="exact-match").data[0]
    assert (inline.name, inline.outputs[0].name, inline.payload_kind) == ("match", "exact-match", "inline")
    assert [metric.name for metric in evaluator.metrics.list(description_contains="EXACT")] == ["match"]
    whole = bundled({"type": "f1", "reference": "y"}).model_dump(mode="json")
    body = {"kind": "evaluator", "intent": "x", "metrics": [whole]}
    evaluator.tasks.create("t", task=TaskInput.model_validate({"spec": body}))
    assert len(evaluator.metrics.list().data) == 2
    assert [metric.derived for metric in evaluator.metrics.list(include_derived=True)] == [False, False, True]
    with pytest.raises(Refused, match="reference"):
        evaluator.metrics.create("broken", metric={"type": "f1"})
    with pytest.raises(Refused, match="no type of metric"):
        evaluator.metrics.create("unknown", metric={"type": "vibes"})


def test_filters_combine_and_bad_ones_are_refused(w: World, evaluator: Evaluator):
    w.publish("a", "b")
    evaluator.tasks.put("c", task=TaskInput.model_validate({"spec": {"kind": "evaluator", "intent": "x"},
        "metadata": [{"key": "verified", "value": True}, {"key": "a.b", "value": 1}]}))  # fmt: skip
    found = evaluator.tasks.list
    assert [t.name for t in found(native_task_id="org/b")] == ["b"]
    assert [t.name for t in found(metadata={"verified": True, "a.b": 1})] == ["c"]
    assert [t.name for t in found(metadata={"a.b": {"$gt": 0}})] == ["c"]
    assert [t.name for t in found(kind="harbor", filter='name:"a" OR name:"c"')] == ["a"]
    assert [t.name for t in found(filter={"$or": [{"name": "b"}, {"name": "c"}]})] == ["b", "c"]
    assert len(found(metadata={}, filter="").data) == 3
    with pytest.raises(Malformed, match="colour"):
        found(filter={"colour": "blue"})
    with pytest.raises(Malformed, match="cannot be matched"):
        evaluator.tasksets.list(task="a#latest")
    with pytest.raises(Refused):
        found(sort="size")  # type: ignore[arg-type]
    with pytest.raises(Refused, match="JSON"):
        found(metadata={"x": math.nan})


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "a b", "a\0b", "a?x=1", "x" * 256])
def test_a_name_that_leads_elsewhere_is_refused_before_anything_is_asked(
    w: World, evaluator: Evaluator, name: str, monkeypatch: pytest.MonkeyPatch
):
    asked: list[object] = []

    async def call(*words: object, **more: object) -> None:
        asked.append(words)

    monkeypatch.setattr("harbor_assets.interfaces.sdk.http.Http.call", call)
    for refuse in (
        lambda: evaluator.tasks.delete(name),
        lambda: evaluator.tasks.put(name, task=task_input("org/a")),
        lambda: evaluator.tasks.tag("a", tag=name, revision="latest"),
        lambda: evaluator.tasks.retrieve("a", tag=name),
        lambda: evaluator.metrics.delete(name if name != "a/b" else "a/b/c"),
        lambda: evaluator.tasks.list(workspace=name),
    ):
        with pytest.raises(Refused):
            refuse()
    assert asked == []


def test_a_body_that_is_no_json_is_refused(evaluator: Evaluator):
    body = TaskInput.model_construct(
        spec=EvaluatorTaskDefinition(intent="x", reference={"x": math.inf}), metadata=[], tags=[]
    )
    with pytest.raises(Refused, match="cannot be sent as JSON"):
        evaluator.tasks.put("a", task=body)


def test_projects_are_passed_on(w: World, evaluator: Evaluator):
    with pytest.raises(Refused, match="nowhere"):
        evaluator.tasks.create("a", task=task_input("org/a"), project="nowhere")
    w.catalog.put_project("default", "here")
    assert evaluator.tasks.create("a", task=task_input("org/a"), project="here").project == "here"


def test_it_works_inside_a_loop_as_in_a_notebook_and_from_several_threads(w: World, evaluator: Evaluator):
    from concurrent.futures import ThreadPoolExecutor

    w.publish("a", "b")

    async def cell() -> list[str]:
        return [task.name for task in evaluator.tasks.list(page_size=1)]

    assert asyncio.run(cell()) == ["a", "b"]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: evaluator.tasks.retrieve("a").name, range(12)))
    assert found == ["a"] * 12


def test_methods_say_what_they_are_for(evaluator: Evaluator):
    import inspect

    for resource in (evaluator.tasks, evaluator.tasksets, evaluator.metrics, evaluator.runs):
        for name, method in inspect.getmembers(resource, callable):
            if not name.startswith("_"):
                assert inspect.getdoc(method), name
    assert list(inspect.signature(evaluator.tasks.create).parameters) == ["name", "task", "project", "workspace"]


def test_the_code_in_the_docs_works(evaluator: Evaluator):
    text = (Path(__file__).parents[2] / "docs" / "sdk.md").read_text()
    [code] = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "tasks.create" in block]
    exec(code, {"evaluator": evaluator})
    assert evaluator.tasksets.retrieve("geography").tasks == [evaluator.tasks.retrieve("capital-of-france").ref]
