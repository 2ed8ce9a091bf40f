"""A database answers a filter as the rules in the domain do: the fake catalog stands on those."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

from harbor_assets.catalog.schema import METADATA
from harbor_assets.catalog.store import Catalog
from harbor_assets.domain.errors import Malformed
from harbor_assets.domain.filters import TASK_FIELDS, AllOf, AnyOf, Filter, Negated, Operator, condition
from harbor_assets.domain.tasks import EvaluatorTask, TaskInput, TaskInputs, TasksetInput
from tests.catalog.samples import body
from tests.fakes.catalog import MemoryCatalog

TEXTS = ["", "a", "A", "ab", "aB%_\\", "Straße", "STRASSE", "\0", "x\0y", "\U0001f600", "é", "z"]
VALUES: list[Any] = [*TEXTS, 0, 1, 1.0, -2.5, 2**60, 10**400, True, False, None, [], ["a"], {"a": 1}]
KEYS = ["k", "K", "", "a.b"]

texts, values = st.sampled_from(TEXTS), st.sampled_from(VALUES)
plain = st.sampled_from([each for each in VALUES if not isinstance(each, list | dict)])
ordered = st.sampled_from(
    [each for each in VALUES if isinstance(each, str | int | float) and not isinstance(each, bool)]
)


def asked_of(field: str, key: str, whole: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter | None]:
    def made(operator: Operator, value: Any) -> Filter | None:
        try:
            return condition(field, key, operator, value, fields=TASK_FIELDS, workspace="ws")
        except Malformed:
            return None

    return st.one_of(
        st.builds(made, st.just(Operator.EQ), whole),
        st.builds(made, st.sampled_from([Operator.IN, Operator.NIN]), st.lists(whole, max_size=3)),
        st.builds(made, st.sampled_from([Operator.LIKE, Operator.STARTS, Operator.ENDS]), texts),
        st.builds(made, st.sampled_from([Operator.LT, Operator.LTE, Operator.GT, Operator.GTE]), ordered),
    )


leaves = st.one_of(
    *(asked_of("metadata", key, values) for key in KEYS),
    *(asked_of(field, "", plain) for field in ("intent", "kind", "name", "project", "native_task_id")),
    asked_of("tags", "", st.sampled_from(["blessed", "latest", "nope"])),
    asked_of("metrics", "", st.sampled_from(["m", "ws/m", "other/m"])),
    asked_of("data", "spec.inputs.x", values),
    asked_of("created_at", "", st.sampled_from(["2020-01-01", "2999-01-01T00:00:00Z"])),
).filter(lambda asked: asked is not None)
filters = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: AllOf(tuple(items))),
        st.lists(inner, max_size=3).map(lambda items: AnyOf(tuple(items))),
        inner.map(Negated),
    ),
    max_leaves=5,
)


def evaluator(intent: str = "x", **values: Any) -> TaskInput:
    spec = EvaluatorTask(intent=intent, inputs=TaskInputs(x=values.pop("x", None)), metrics=values.pop("metrics", []))
    return TaskInput(spec=spec, **values)


def fill(catalog: Catalog | MemoryCatalog) -> None:
    catalog.put_project("ws", "p")
    for number, value in enumerate(VALUES):
        notes = [{"key": KEYS[number % len(KEYS)], "value": value}, {"key": "also", "value": number}]
        intent = value if isinstance(value, str) else f"n{number}"
        catalog.put_task("ws", f"e{number:02}", evaluator("first"))
        catalog.put_task(
            "ws",
            f"e{number:02}",
            evaluator(intent, x=value, metadata=notes, metrics=["m"] if number % 2 else ["other/m"]),
            project="p" if number % 3 == 0 else None,
        )
    catalog.put_task("ws", "h", body("h", tags=["blessed"], metadata=[{"key": "k", "value": "a"}]))
    catalog.put_task("elsewhere", "h", body("h", metadata=[{"key": "k", "value": "a"}]))


@pytest.fixture
def pair(url: str):
    memory = MemoryCatalog()
    fill(memory)
    with Catalog.open(url) as stored:
        fill(stored)
        yield stored, memory


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=filters)
def test_a_database_answers_as_the_rules_do(pair: tuple[Catalog, MemoryCatalog], asked: Filter) -> None:
    stored, memory = (catalog.list_tasks("ws", where=asked) for catalog in pair)
    assert [task.name for task in stored.items] == [task.name for task in memory.items]
    assert stored.total == memory.total


def names(catalog: Catalog, **asked: Any) -> list[str]:
    ((field, value),) = asked.items()
    where = condition(field, "", Operator.EQ, value, fields=TASK_FIELDS, workspace="ws")
    return [task.name for task in catalog.list_tasks("ws", where=where).items]


def test_only_the_current_revision_is_asked_and_nothing_is_left_of_a_deleted_record(url: str) -> None:
    with Catalog.open(url) as catalog:
        catalog.put_task("ws", "t", evaluator("old"))
        catalog.put_task("ws", "t", evaluator("new"))
        assert (names(catalog, intent="old"), names(catalog, intent="new")) == ([], ["t"])
        catalog.delete_task("ws", "t")
        assert names(catalog, intent="new") == []
    with create_engine(url).connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM task_facts")) == 0


TABLES_OF_0004 = {
    *(f"{noun}{part}" for noun in ("task", "taskset") for part in ("s", "_revisions", "_tags")),
    *("runs", "plans", "outcomes", "tries", "idempotency", "images", "task_images", "image_claims"),
}


def test_records_of_before_the_facts_are_found_after_the_upgrade(url: str) -> None:
    with Catalog.open(url) as catalog:
        catalog.put_task("ws", "t", evaluator("x"))
        catalog.put_taskset("ws", "s", TasksetInput(tasks=["t"], description="d"))
    with create_engine(url).begin() as connection:  # as the version before left it
        for table in reversed(METADATA.sorted_tables):  # those that others refer to last
            if table.name not in TABLES_OF_0004:
                connection.execute(text(f"DROP TABLE {table.name}"))
        for noun in ("tasks", "tasksets"):
            for column in ("created_at", "updated_at"):
                connection.execute(text(f"DROP INDEX ix_{noun}_workspace_{column}"))
            connection.execute(text(f"ALTER TABLE {noun} DROP COLUMN project"))
        connection.execute(text("ALTER TABLE runs DROP COLUMN admission"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0004'"))
    with Catalog.open(url) as catalog:
        assert names(catalog, intent="x") == ["t"]


def test_a_filter_that_looks_into_bodies_pages_like_any_other(tmp_path: Path) -> None:
    with Catalog.open(f"sqlite:///{tmp_path}/c.db") as catalog:
        for number in range(5):
            catalog.put_task("ws", f"t{number}", evaluator("x", x=number))
        where = condition("data", "spec.inputs.x", Operator.GTE, 1, fields=TASK_FIELDS, workspace="ws")
        page = catalog.list_tasks("ws", where=where, page=2, page_size=2)
        assert ([task.name for task in page.items], page.total) == (["t3", "t4"], 4)
