"""The smallest deployment that runs evaluations: Postgres, code server, daemon, rights. As lists of plain objects."""

import json
from typing import Any

Object = dict[str, Any]
PASSWORD = "for-tests-only"
ENV = {
    "HARBOR_ASSETS_EXECUTOR": "kubernetes",
    "HARBOR_ASSETS_HOME": "/tmp/home",
    "HARBOR_ASSETS_ARTIFACTS_URL": "/var/lib/harbor-assets/artifacts",
    "HARBOR_ASSETS_SETTLE_SECONDS": "2",
    "HARBOR_ASSETS_REAP_SECONDS": "10",
    "HARBOR_ASSETS_CANCEL_POLL_SECONDS": "1",
}
VOLUMES = [
    {"name": "artifacts", "persistentVolumeClaim": {"claimName": "harbor-assets-artifacts"}},
    {"name": "instance", "configMap": {"name": "harbor-assets-instance"}},
]
ARTIFACTS = {"name": "artifacts", "mountPath": "/var/lib/harbor-assets"}


def deployment(namespace: str, image: str) -> list[Object]:
    env = {**ENV, "HARBOR_ASSETS_NAMESPACE": namespace, "HARBOR_ASSETS_WORKER_IMAGE": image}
    return [
        _object("Secret", "harbor-assets-postgres", stringData={"postgresql-password": PASSWORD}),
        _object(
            "Secret",
            "harbor-assets-catalog",
            stringData={
                "HARBOR_ASSETS_CATALOG_URL": f"postgresql+psycopg://dagster:{PASSWORD}@harbor-assets-postgres/harbor"
            },
        ),
        _object("ConfigMap", "harbor-assets-env", data=env),
        _object("ConfigMap", "harbor-assets-instance", data=_instance(namespace)),
        _object(
            "PersistentVolumeClaim",
            "harbor-assets-artifacts",
            spec={"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
        ),
        *_rights(),
        _postgres(),
        _service("harbor-assets-postgres", 5432),
        _service("harbor-assets-code", 4000),
        _program(
            "harbor-assets-code",
            image,
            ["dagster", "api", "grpc", "-h", "0.0.0.0", "-p", "4000", "-m", "harbor_assets.definitions"],
        ),
        _program("harbor-assets-daemon", image, ["dagster-daemon", "run", "-w", "/dagster/workspace.yaml"]),
    ]


def _instance(namespace: str) -> dict[str, str]:
    config = {
        "storage": {
            "postgres": {
                "postgres_db": {
                    "hostname": "harbor-assets-postgres",
                    "username": "dagster",
                    "password": {"env": "DAGSTER_PG_PASSWORD"},
                    "db_name": "dagster",
                    "port": 5432,
                    "scheme": "postgresql+psycopg2",
                }
            }
        },
        "run_coordinator": {
            "module": "dagster.core.run_coordinator",
            "class": "QueuedRunCoordinator",
            "config": {"dequeue_interval_seconds": 1},
        },
        "run_launcher": {
            "module": "harbor_assets.run_launcher",
            "class": "DeploymentRunLauncher",
            "config": {
                "job_namespace": namespace,
                "service_account_name": "harbor-assets-run-worker",
                "trial_service_account": "harbor-assets-trial-worker",
                "postgres_password_secret": "harbor-assets-postgres",
                "dagster_home": "/dagster",
                "env_config_maps": ["harbor-assets-env"],
                "env_secrets": ["harbor-assets-catalog"],
                "volumes": [VOLUMES[0]],
                "volume_mounts": [ARTIFACTS],
                "trial_resources": {"requests": {"cpu": "20m", "memory": "128Mi"}, "limits": {"memory": "300Mi"}},
            },
        },
        "run_monitoring": {
            "enabled": True,
            "start_timeout_seconds": 180,
            "poll_interval_seconds": 3,
            "max_resume_run_attempts": 3,
            "cancel_timeout_seconds": 60,
        },
        "telemetry": {"enabled": False},
    }
    code = {"grpc_server": {"host": "harbor-assets-code", "port": 4000, "location_name": "harbor_assets"}}
    return {"dagster.yaml": json.dumps(config), "workspace.yaml": json.dumps({"load_from": [code]})}


def _rights() -> list[Object]:
    jobs, status = (
        {"apiGroups": ["batch"], "resources": ["jobs"]},
        {"apiGroups": ["batch"], "resources": ["jobs/status"]},
    )
    pods = {"apiGroups": [""], "resources": ["pods"]}
    bags = {"apiGroups": [""], "resources": ["secrets", "configmaps"]}
    return [
        *_role(
            "harbor-assets-service",
            {**jobs, "verbs": ["create", "list", "delete"]},
            {**status, "verbs": ["get"]},
            {**pods, "verbs": ["list", "delete"]},
            {**bags, "verbs": ["deletecollection"]},
        ),
        *_role(
            "harbor-assets-run-worker",
            {**jobs, "verbs": ["create", "list", "delete"]},
            {**status, "verbs": ["get"]},
            {**pods, "verbs": ["list"]},
        ),
        *_role("harbor-assets-trial-worker", {**pods, "verbs": ["create", "get", "list", "watch", "patch", "delete"]}),
    ]


def _role(name: str, *rules: Object) -> list[Object]:
    group = "rbac.authorization.k8s.io"
    return [
        _object("ServiceAccount", name),
        _object("Role", name, rules=list(rules)),
        _object(
            "RoleBinding",
            name,
            roleRef={"apiGroup": group, "kind": "Role", "name": name},
            subjects=[{"kind": "ServiceAccount", "name": name}],
        ),
    ]


_API = {
    "Deployment": "apps/v1",
    "Role": "rbac.authorization.k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
}


def _object(kind: str, name: str, **parts: Any) -> Object:
    labels = {"app.kubernetes.io/part-of": "harbor-assets"}
    return {"apiVersion": _API.get(kind, "v1"), "kind": kind, "metadata": {"name": name, "labels": labels}, **parts}


def _service(name: str, port: int) -> Object:
    return _object("Service", name, spec={"selector": {"app": name}, "ports": [{"port": port}]})


def _pods(name: str, spec: Object) -> Object:
    return _object(
        "Deployment",
        name,
        spec={
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"enableServiceLinks": False, **spec}},
        },
    )


def _postgres() -> Object:
    container = {
        "name": "main",
        "image": "postgres:15",
        "env": [
            {"name": "POSTGRES_USER", "value": "dagster"},
            {"name": "POSTGRES_DB", "value": "dagster"},
            {"name": "POSTGRES_PASSWORD", "value": PASSWORD},
            {"name": "PGPASSWORD", "value": PASSWORD},
        ],
        "readinessProbe": {
            "exec": {"command": ["psql", "-U", "dagster", "-h", "127.0.0.1", "-c", "select 1", "dagster"]},
            "periodSeconds": 5,
            "timeoutSeconds": 30,  # it is a program, and the cores are shared
        },
    }
    return _pods("harbor-assets-postgres", {"containers": [container]})


def _program(name: str, image: str, command: list[str]) -> Object:
    secret = {"name": "harbor-assets-postgres", "key": "postgresql-password"}
    container = {
        "name": "main",
        "image": image,
        "command": command,
        "env": [
            {"name": "DAGSTER_HOME", "value": "/dagster"},
            {"name": "DAGSTER_CURRENT_IMAGE", "value": image},
            {"name": "DAGSTER_PG_PASSWORD", "valueFrom": {"secretKeyRef": secret}},
        ],
        "envFrom": [
            {"configMapRef": {"name": "harbor-assets-env"}},
            {"secretRef": {"name": "harbor-assets-catalog"}},
        ],
        "volumeMounts": [
            ARTIFACTS,
            {"name": "instance", "mountPath": "/dagster/dagster.yaml", "subPath": "dagster.yaml"},
            {"name": "instance", "mountPath": "/dagster/workspace.yaml", "subPath": "workspace.yaml"},
        ],
    }
    return _pods(name, {"serviceAccountName": "harbor-assets-service", "containers": [container], "volumes": VOLUMES})
