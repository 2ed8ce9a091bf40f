"""The events of what is published: task revisions, tasksets and images."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from harbor_assets.domain.images import partition_key
from harbor_assets.domain.names import Ref
from harbor_assets.events.links import partition_link

FILES_SHOWN = 200  # of a task's list; the archive holds all


def task_event(
    ref: str,
    *,
    workspace: str,
    native_task_id: str | None = None,
    files_hash: str | None = None,
    files: Sequence[tuple[str, int]] | None = None,
) -> dg.AssetMaterialization:
    """A task revision. `files`: (path, bytes), if somebody has the archive at hand. A task without one has no archive's
    name and hash either."""
    parsed = Ref.parse(ref, workspace=workspace)
    metadata: dict[str, Any] = {"ref": ref}
    if native_task_id is not None and files_hash is not None:
        metadata |= {"native_task_id": native_task_id, "files_hash": files_hash}
    if files is not None:
        metadata |= {
            "files": len(files),
            "bytes": sum(size for _, size in files),
            "file_list": dg.MetadataValue.json([{"path": path, "size": size} for path, size in files[:FILES_SHOWN]]),
        }
    return dg.AssetMaterialization(
        "harbor_task",
        partition=parsed.partition_key,
        description=f"Published {ref}",
        metadata=metadata,
        tags={"dagster/data_version": str(parsed.fragment)},
    )


def taskset_event(ref: str, tasks: Sequence[str], *, workspace: str) -> dg.AssetMaterialization:
    """A taskset of pinned tasks (`ws/name#digest` each)."""
    parsed = Ref.parse(ref, workspace=workspace)
    keys = [Ref.parse(task, workspace=workspace).partition_key for task in tasks]
    columns = [dg.TableColumn("task", description="name and digest"), dg.TableColumn("partition")]
    records = [dg.TableRecord({"task": r, "partition": k}) for r, k in zip(tasks, keys, strict=True)]
    metadata: dict[str, Any] = {
        "ref": ref,
        "tasks": len(tasks),
        "dagster/row_count": len(tasks),
        "members": dg.MetadataValue.table(records[:FILES_SHOWN], dg.TableSchema(columns)),
    }
    if len(keys) == 1:
        metadata["task"] = partition_link("harbor_task", keys[0])
    return dg.AssetMaterialization(
        "taskset",
        partition=parsed.partition_key,
        description=f"Published {ref} ({len(tasks)} tasks)",
        metadata=metadata,
        tags={"dagster/data_version": str(parsed.fragment)},
    )


def image_event(ref: str, *, name: str, key: str, log: str | None = None) -> dg.AssetMaterialization:
    """An image `repository@digest`. `name`: its tag, `key` that of its content, `log` where its lines are kept."""
    metadata: dict[str, Any] = {"ref": ref, "name": name, "key": key}
    if log is not None:
        metadata["build_log"] = log
    return dg.AssetMaterialization(
        "task_image",
        partition=partition_key(ref),
        description=f"Ready: {name}",
        metadata=metadata,
        tags={"dagster/data_version": ref.rpartition("@")[2]},
    )
