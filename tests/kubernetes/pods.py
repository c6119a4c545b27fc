"""The containers of deploy/kubernetes, both variants, without Kubernetes: their commands, as processes of user 10001 (where
this runs as root), with the secrets' files as the kubelet mounts them, an address of 127/8 a pod, and its probes asked.

Usage: pods.py DEPLOY_KUBERNETES_DIR BUILD_DIR   (needs PyYAML)
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import yaml

root = pathlib.Path(sys.argv[1])
bin_dir = (pathlib.Path(sys.argv[2]) / "bin").resolve()
repository = pathlib.Path.cwd()
user = 10001 if os.geteuid() == 0 else os.geteuid()
SECRETS = {  # as docs/kubernetes.md makes them
    "manta-head": ["ca.pem", "admin.pem", "admin.key", "token", "token.worker"],
    "manta-node": ["ca.pem", "node.pem", "node.key", "worker.pem", "worker.key", "token.node"],
}
work = pathlib.Path(tempfile.mkdtemp(prefix="manta-pods-"))
work.chmod(0o755)
pods = []


def check(condition, what):
    print(("ok   " if condition else "FAIL ") + what, flush=True)
    if not condition:
        for pod in pods:
            print(f"---- {pod.name}\n" + pod.log.read_text()[-4000:])
        sys.exit(1)


def own(path):
    if os.geteuid() == 0:
        os.chown(path, user, user)
    return path


def spec_of(file):
    """The pod's spec in a file, or in FILE:JOB of a JobSet."""
    file, _, job = file.partition(":")
    document = yaml.safe_load((root / file).read_text())
    for replicated in document["spec"].get("replicatedJobs", []):
        if replicated["name"] == job:
            document = replicated["template"]
    return document["spec"]["template"]["spec"]


class Pod:
    """A pod template's one container on this machine."""

    def __init__(self, file, name, address):
        spec = spec_of(file)
        self.name, self.spec, self.container = name, spec, spec["containers"][0]
        self.dir = own_dir(work / name)
        self.log = work / f"{name}.log"
        self.address, self.probes = address, 0
        secret = next(v["secret"]["secretName"] for v in spec["volumes"] if v["name"] == "keys")
        keys = self.dir / "keys"
        keys.mkdir()
        for file in SECRETS[secret]:
            shutil.copy(work / "certs" / file, keys / file)
            (keys / file).chmod(0o440)
            if os.geteuid() == 0:
                os.chown(keys / file, 0, user)
        self.paths = {"/var/lib/manta": own_dir(self.dir / "state"), "/etc/manta": keys, "/data": work / "data",
                      "/opt/recipe": work / "recipe"}
        pods.append(self)

    def place(self, text):
        for path, here in self.paths.items():
            text = text.replace(path, str(here))
        # Ports of one address a pod are ports of one machine here.
        return text.replace("0.0.0.0:8081", f"{self.address}:{self.probe_port()}")

    def probe_port(self):
        return 8081

    def environment(self):
        fields = {"metadata.name": self.name, "status.podIP": self.address}
        env = {"PATH": f"{bin_dir}:/usr/bin:/bin", "HOME": "/nonexistent"}
        for entry in self.container["env"]:
            value = entry.get("value")
            if value is None:
                value = fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
            env[entry["name"]] = re.sub(r"^manta-head-0(-0)?\.manta(-jobset)?:", "127.0.74.1:", self.place(value))
        return env

    def run(self, command):
        return subprocess.Popen([self.place(word) for word in command], env=self.environment(), cwd=repository,
                                stdin=subprocess.DEVNULL, stdout=self.log.open("a"), stderr=subprocess.STDOUT,
                                start_new_session=True, **({"user": user, "group": user, "extra_groups": []}
                                                           if os.geteuid() == 0 else {}))

    def start(self):
        self.process = self.run(self.container["command"])

    def probe(self, name):
        path = self.container[name]["httpGet"]["path"]
        try:
            return urllib.request.urlopen(f"http://{self.address}:8081{path}", timeout=1).status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def wait(self, probe, code, seconds=20):
        end = time.monotonic() + seconds
        while self.probe(probe) != code and time.monotonic() < end:
            time.sleep(0.05)
        check(self.probe(probe) == code, f"{self.name}: {probe} answers {code}")


def own_dir(path):
    path.mkdir()
    return own(path)


def wait_exit(process, seconds):
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def recipe(more):
    text = yaml.safe_load((root / "base" / "recipe.yaml").read_text())["data"]["recipe.yaml"]
    return text.replace("/opt/manta", str(repository)).replace("/data", str(work / "data")) + more


SHORT = "grpo:\n  max_num_steps: 2\n  val_period: 0\n  val_at_start: false\n"


def submit(file, name, text):
    (work / "recipe" / "recipe.yaml").write_text(text)
    run = Pod(file, name, "127.0.74.9")
    run.start()
    return wait_exit(run.process, 120)


def prepare():
    subprocess.run([bin_dir / "manta", "init-certs", work / "certs", "--job", "pods"], check=True,
                   stdout=subprocess.DEVNULL)
    own_dir(work / "data")
    (work / "recipe").mkdir()


def statefulset():
    head = Pod("statefulset/head.yaml", "manta-head-0", "127.0.74.1")
    nodes = [Pod("statefulset/nodes.yaml", f"manta-node-{i}", f"127.0.74.{2 + i}") for i in range(2)]
    nodes[0].start()  # before the head
    nodes[0].wait("livenessProbe", 200)
    nodes[0].wait("readinessProbe", 503)
    head.start()
    nodes[1].start()
    for pod in [head, *nodes]:
        pod.wait("startupProbe", 200)
        pod.wait("readinessProbe", 200)

    check(submit("statefulset/run.yaml", "manta-run-a", recipe(SHORT)) == 0, "the run's job ends with 0")
    check(submit("statefulset/run.yaml", "manta-run-b", recipe("grpo:\n  no_such_key: 1\n")) == 64,
          "a wrong recipe's job ends with 64")

    # A head that is moved: its successor finds the journal, the nodes come back.
    head.process.send_signal(signal.SIGTERM)
    check(wait_exit(head.process, 20) == 0, "the head ends with 0 on SIGTERM")
    nodes[0].wait("readinessProbe", 503)
    check(nodes[0].probe("livenessProbe") == 200, "a node without a head is alive")
    head.start()
    for pod in [head, *nodes]:
        pod.wait("readinessProbe", 200)

    # A node that is taken away.
    hook = nodes[1].container["lifecycle"]["preStop"]["exec"]["command"]
    check(wait_exit(nodes[1].run(hook), 30) == 0, "the preStop hook drains the node")
    nodes[1].process.send_signal(signal.SIGTERM)
    check(wait_exit(nodes[1].process, 20) == 0, "the node ends with 0 on SIGTERM")
    audit = (head.dir / "state" / "logs" / "audit.log").read_text()
    check("ClusterService/Drain role=node peer=ipv4:127." in audit, "the drain is in the audit log, by the node")
    check("certificate=manta://pods/admin/admin" in audit, "so is who submitted")
    stop()


def jobset():
    head = Pod("jobset/jobset.yaml:head", "manta-head-0-0-x", "127.0.74.1")
    nodes = [Pod("jobset/jobset.yaml:node", f"manta-node-0-{i}-x", f"127.0.74.{2 + i}") for i in range(2)]
    for pod in [head, *nodes]:
        pod.start()
    check(submit("jobset/jobset.yaml:run", "manta-run-0-0-x", recipe(SHORT)) == 0, "the set's run ends with 0")
    head.process.send_signal(signal.SIGTERM)  # as the set's end does; this head stops everything
    for pod in [head, *nodes]:
        check(wait_exit(pod.process, 20) == 0, f"{pod.name} ends with 0 with the set")
    stop()


def stop():
    for pod in pods:
        process = getattr(pod, "process", None)
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGINT)
            if wait_exit(process, 10) is None:
                process.kill()
    pods.clear()


try:
    prepare()
    statefulset()
    jobset()
finally:
    stop()
    shutil.rmtree(work, ignore_errors=True)
