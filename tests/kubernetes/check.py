"""Checks deploy/kubernetes without a cluster: every object against the published schema of its kind, JobSet against
jobset.schema.json beside this file, kustomizations for files that are there, and what must hold of every pod.

Usage: check.py DEPLOY_KUBERNETES_DIR   (needs kubernetes-validate, PyYAML and jsonschema)
"""
import json
import pathlib
import sys

import jsonschema
import kubernetes_validate
import yaml

VERSION = "1.33"
root = pathlib.Path(sys.argv[1])
here = pathlib.Path(__file__).parent
failures = []
objects = 0


def fail(where, why):
    failures.append(f"{where}: {why}")


def pods(node, path=""):
    """Every pod template's spec below `node`."""
    if isinstance(node, dict):
        if "containers" in node:
            yield path, node
        for key, value in node.items():
            yield from pods(value, f"{path}/{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from pods(value, f"{path}/{index}")


def check_pod(where, pod):
    security = pod.get("securityContext", {})
    if security.get("runAsNonRoot") is not True or security.get("runAsUser", 0) == 0:
        fail(where, "runs as root")
    if security.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        fail(where, "has no seccomp profile")
    if pod.get("automountServiceAccountToken") is not False:
        fail(where, "mounts a token of the API server")
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    for volume in pod.get("volumes", []):
        if "secret" in volume and volume["secret"].get("defaultMode") not in (0o400, 0o440):
            fail(where, f"secret {volume['name']} can be read by others")
    for container in pod["containers"]:
        name = f"{where} container {container['name']}"
        own = container.get("securityContext", {})
        if own.get("readOnlyRootFilesystem") is not True:
            fail(name, "may write to its root file system")
        if own.get("allowPrivilegeEscalation") is not False or own.get("capabilities", {}).get("drop") != ["ALL"]:
            fail(name, "may gain privileges")
        if "resources" not in container:
            fail(name, "has no limits")
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes and mount["name"] != "state":  # may be a claim
                fail(name, f"mounts {mount['name']}, which is no volume")
        if container["name"] != "submit":
            for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz"), ("startupProbe", "/healthz")):
                if container.get(probe, {}).get("httpGet", {}).get("path") != path:
                    fail(name, f"has no {probe} at {path}")
        if container["name"] == "node" and "preStop" not in container.get("lifecycle", {}):
            fail(name, "is not drained before it stops")


def names_of(kind):
    return {document["metadata"]["name"] for file in root.rglob("*.yaml")
            for document in yaml.safe_load_all(file.read_text()) if document["kind"] == kind}


def check_references(where, pod):
    """What a pod mounts of ours is declared; secrets are the user's, by the names that docs/kubernetes.md makes."""
    documented = (here.parent.parent / "docs" / "kubernetes.md").read_text()
    if pod.get("serviceAccountName") not in names_of("ServiceAccount"):
        fail(where, f"runs as {pod.get('serviceAccountName')}, which is no service account")
    for volume in pod.get("volumes", []):
        if "configMap" in volume and volume["configMap"]["name"] not in names_of("ConfigMap"):
            fail(where, f"mounts {volume['configMap']['name']}, which is no config map")
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim is not None and claim not in names_of("PersistentVolumeClaim"):
            fail(where, f"mounts {claim}, which is no claim")
        if "secret" in volume and f"generic {volume['secret']['secretName']}" not in documented:
            fail(where, f"mounts {volume['secret']['secretName']}, which docs/kubernetes.md does not make")


jobset_schema = json.loads((here / "jobset.schema.json").read_text())
for file in sorted(root.rglob("*.yaml")):
    for document in yaml.safe_load_all(file.read_text()):
        where = f"{file.relative_to(root)} {document['kind']}"
        objects += 1
        if document["kind"] in ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"):
            fail(where, "Manta needs no rights at the API server")
        if document["kind"] == "Kustomization":
            for resource in document["resources"]:
                if not (file.parent / resource).exists():
                    fail(where, f"lists {resource}, which is not there")
            listed = {resource for resource in document["resources"]}
            for other in file.parent.glob("*.yaml"):
                if other != file and other.name not in listed:
                    fail(where, f"does not list {other.name}")
            continue
        try:
            if document["kind"] == "JobSet":
                jsonschema.validate(document, jobset_schema)
                for job in document["spec"]["replicatedJobs"]:
                    embedded = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]},
                                "spec": job["template"]["spec"]}
                    kubernetes_validate.validate(embedded, VERSION, strict=True)
                names = [job["name"] for job in document["spec"]["replicatedJobs"]]
                for target in document["spec"].get("successPolicy", {}).get("targetReplicatedJobs", []):
                    if target not in names:
                        fail(where, f"ends with {target}, which is no job of it")
            else:
                kubernetes_validate.validate(document, VERSION, strict=True)
        except (jsonschema.ValidationError, kubernetes_validate.ValidationError) as error:
            fail(where, str(error).splitlines()[0])
        for path, pod in pods(document):
            check_pod(where + path, pod)
            check_references(where + path, pod)

for failure in failures:
    print("FAIL", failure)
print(f"{objects} objects, {len(failures)} failures")
sys.exit(1 if failures or objects < 9 else 0)
