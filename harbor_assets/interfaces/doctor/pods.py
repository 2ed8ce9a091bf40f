"""The objects of a probe: a Job whose pod listens, a pod that asks, and a policy for each. Pure."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from harbor_assets.interfaces.deployment.manifests import OURS, PART_OF, Object
from harbor_assets.interfaces.doctor.inside import NO_EGRESS, NO_INGRESS, OPEN

LABEL = "harbor-assets/doctor"


def labels(mark: str, role: str) -> dict[str, str]:
    """Labels of all that a probe makes."""
    return {
        PART_OF: OURS,
        "app.kubernetes.io/component": "doctor",
        LABEL: mark,
        f"{LABEL}-role": role,
    }


def server_job(mark: str, image: str, place: Mapping[str, Any], asked: Mapping[str, Any]) -> Object:
    """The Job of the pod that listens; everything else belongs to it."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"harbor-assets-doctor-{mark}", "labels": labels(mark, "job")},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": 300,
            "ttlSecondsAfterFinished": 60,
            "template": {"metadata": {"labels": labels(mark, "server")}, "spec": _pod_spec(image, place, asked)},
        },
    }


def client_pod(mark: str, image: str, place: Mapping[str, Any], owner: Object, server: str) -> Object:
    """The pod that asks."""
    name = f"harbor-assets-doctor-{mark}-client"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels(mark, "client"), "ownerReferences": [owner]},
        "spec": {**_pod_spec(image, place, {"server": server}), "activeDeadlineSeconds": 180},
    }


def policies(mark: str, owner: Object) -> list[Object]:
    """One that keeps the server from being asked at one port, one that keeps the client from asking at another."""

    def policy(role: str, kind: str, rules: str, ports: Sequence[int]) -> Object:
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {
                "name": f"harbor-assets-doctor-{mark}-{role}",
                "labels": labels(mark, "policy"),
                "ownerReferences": [owner],
            },
            "spec": {
                "podSelector": {"matchLabels": {LABEL: mark, f"{LABEL}-role": role}},
                "policyTypes": [kind],
                rules: [{"ports": [{"protocol": "TCP", "port": port} for port in ports]}],
            },
        }

    return [
        policy("server", "Ingress", "ingress", (OPEN, NO_EGRESS)),
        policy("client", "Egress", "egress", (OPEN, NO_INGRESS)),
    ]


def _pod_spec(image: str, place: Mapping[str, Any], asked: Mapping[str, Any]) -> Object:
    program = (files(__package__) / "inside.py").read_text(encoding="utf-8")
    return {
        **place,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "probe",
                "image": image,
                "command": ["python3", "-c", program],
                "env": [{"name": "ASKED", "value": json.dumps(asked)}],
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "resources": {
                    "requests": {"cpu": "10m", "memory": "32Mi"},
                    "limits": {"cpu": "500m", "memory": "128Mi"},
                },
            }
        ],
    }
