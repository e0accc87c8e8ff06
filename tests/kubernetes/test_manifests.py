"""docs/kubernetes against the schemas of Kubernetes and, where they are, of the Prometheus Operator, and against what
kafkatap has and systemd's unit says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from kafkatap.commands.command_parser import build_parser
from tests.live.test_units import command, unit

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "kubernetes"
PAGE = ROOT / "docs" / "live-service.md"
ALERTS = FOLDER / "operator" / "alerts.yaml"
RULES = ROOT / "docs" / "live" / "alerts.yml"
#: A folder with monitoring.coreos.com_podmonitors.yaml and so on: example/prometheus-operator-crd of the operator.
DEFINITIONS = os.environ.get("KAFKATAP_OPERATOR_CRDS", "")
Object = dict[str, Any]

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl, for its kustomize")


def objects_of(*paths: Path) -> list[Object]:
    return [found for path in paths for found in yaml.safe_load_all(path.read_text())]


def only(kind: str, found: list[Object]) -> Object:
    (one,) = [each for each in found if each["kind"] == kind]
    return one


def built(folder: Path) -> list[Object]:
    """What `kubectl apply -k` sends."""
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return list(yaml.safe_load_all(done.stdout))


WRITTEN = objects_of(*(FOLDER / "base" / f"{name}.yaml" for name in ("namespace", "rbac", "daemonset")))
POD = only("DaemonSet", WRITTEN)["spec"]["template"]["spec"]
FILTER = "tcp port 9092 or icmp or icmp6"
(TAP, HOSTS), (FIRST,) = POD["containers"], POD["initContainers"]


@pytest.mark.parametrize("version", ["1.29", "1.33", "1.37"])
def test_the_files_are_right_by_the_schemas_of_kubernetes(version: str) -> None:
    for each in WRITTEN:
        kubernetes_validate.validate(each, version, strict=True)


@needs_kubectl
@pytest.mark.parametrize("name", ["base", "operator"])
def test_what_kustomize_makes_is_right(name: str) -> None:
    found = built(FOLDER / name)
    for each in found:
        if each["apiVersion"].startswith("monitoring.coreos.com/"):
            assert name == "operator"
        else:
            kubernetes_validate.validate(each, "1.37", strict=True)
    of_cluster = ("Namespace", "ClusterRole", "ClusterRoleBinding")
    spaces = {each["metadata"].get("namespace") for each in found if each["kind"] not in of_cluster}
    assert spaces == {"kafkatap"}
    spec = only("DaemonSet", found)["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    maps = {each["metadata"]["name"]: each["data"] for each in found if each["kind"] == "ConfigMap"}
    (volume,) = [each for each in spec["template"]["spec"]["volumes"] if "configMap" in each]
    script = (FOLDER / "base" / "hosts.sh").read_text()
    assert maps == {volume["configMap"]["name"]: {"hosts.sh": script}, settings_of(spec): {"FILTER": FILTER}}
    account, role = only("ServiceAccount", found), only("ClusterRole", found)
    bound = only("ClusterRoleBinding", found)
    assert bound["roleRef"]["name"] == role["metadata"]["name"]
    assert [(each["name"], each["namespace"]) for each in bound["subjects"]] == [
        (account["metadata"]["name"], "kafkatap")
    ]
    assert spec["template"]["spec"]["serviceAccountName"] == account["metadata"]["name"]
    if name == "operator":
        labels = only("PodMonitor", found)["spec"]["selector"]["matchLabels"]
        assert labels.items() <= spec["template"]["metadata"]["labels"].items()


def settings_of(spec: Object) -> str:
    """The name of the map with settings."""
    tap = spec["template"]["spec"]["containers"][0]
    (filter_,) = [each for each in tap["env"] if each["name"] == "FILTER"]
    return filter_["valueFrom"]["configMapKeyRef"]["name"]


@needs_kubectl
def test_the_overlay_of_the_page_changes_image_and_filter(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(# kustomization.yaml.*?)```", PAGE.read_text(), re.DOTALL)
    shutil.copytree(FOLDER, tmp_path / "docs" / "kubernetes")
    (tmp_path / "kustomization.yaml").write_text(text.replace("kafkatap/docs", "docs"))
    found = built(tmp_path)
    spec = only("DaemonSet", found)["spec"]
    images = [each["image"] for each in spec["template"]["spec"]["containers"]]
    assert images == ["registry.example.com/kafkatap:0.1", HOSTS["image"]]
    maps = {each["metadata"]["name"]: each["data"] for each in found if each["kind"] == "ConfigMap"}
    assert maps[settings_of(spec)] == {"FILTER": "tcp port 9092 or tcp port 9093"}


def closed(schema: Any) -> Any:
    """The schema, without place for properties that it does not name: the API server drops them in silence."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(each) for name, each in schema.items()}
    if "(?i)" in str(found.get("pattern", "")):  # Go has it anywhere
        found["pattern"] = f"(?i){found['pattern'].replace('(?i)', '')}"
    if isinstance(found.get("properties"), dict) and found.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found


@pytest.mark.skipif(
    not DEFINITIONS, reason="needs the operator's definitions: KAFKATAP_OPERATOR_CRDS names their folder"
)
@pytest.mark.parametrize(("file", "plural"), [("podmonitor.yaml", "podmonitors"), ("alerts.yaml", "prometheusrules")])
def test_the_files_are_right_by_the_definitions_of_the_operator(file: str, plural: str) -> None:
    definition = yaml.safe_load((Path(DEFINITIONS) / f"monitoring.coreos.com_{plural}.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    whole = version["schema"]["openAPIV3Schema"]
    (found,) = objects_of(FOLDER / "operator" / file)
    assert found["apiVersion"] == f"{definition['spec']['group']}/{version['name']}"
    jsonschema.validate(found["spec"], closed(whole["properties"]["spec"]))
    assert found["kind"] == definition["spec"]["names"]["kind"]


def test_the_monitor_reads_the_port_of_the_metrics() -> None:
    (monitor,) = objects_of(FOLDER / "operator" / "podmonitor.yaml")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (port,) = TAP["ports"]
    assert endpoint["port"] == port["name"]
    assert f":{port['containerPort']}" in next(word for word in TAP["args"] if word.startswith("--prometheus"))


def test_the_alerts_are_those_of_prometheus() -> None:
    """KAFKATAP_UPDATE=1 writes them anew."""
    head = (
        "# docs/live/alerts.yml for the Prometheus Operator.\napiVersion: monitoring.coreos.com/v1\n"
        "kind: PrometheusRule\nmetadata:\n  name: kafkatap\nspec:\n"
    )
    rules = RULES.read_text()
    text = head + re.sub(r"^(?=.)", "  ", rules[rules.index("groups:") :], flags=re.MULTILINE)
    if os.environ.get("KAFKATAP_UPDATE"):
        ALERTS.write_text(text)
    assert ALERTS.read_text() == text
    assert objects_of(ALERTS)[0]["spec"] == yaml.safe_load(rules)


def test_the_command_is_that_of_the_unit() -> None:
    """But for the address of the metrics, and the names of addresses."""
    words = [word.replace("$(HOST_IP)", "10.0.0.1").replace("$(FILTER)", FILTER) for word in TAP["args"]]
    mine, of_unit = (vars(build_parser().parse_args(each)) for each in (words, command()[1:]))
    assert (mine.pop("prometheus"), of_unit.pop("prometheus")) == (("10.0.0.1", 9464), ("127.0.0.1", 9464))
    files = [mine.pop("hosts"), of_unit.pop("hosts")]
    assert files == [[f"/hosts/{kind}.json" for kind in ("pods", "services", "nodes")], None]
    assert mine == of_unit
    (limit,) = unit()["MemoryMax"]
    assert TAP["resources"]["limits"]["memory"] == f"{limit}i"


def test_it_reads_the_hosts_that_are_written() -> None:
    files = [word.partition("=")[2] for word in TAP["args"] if word.startswith("--hosts=")]
    kinds = [Path(file).stem for file in files]
    (rule,) = only("ClusterRole", WRITTEN)["rules"]
    assert kinds == rule["resources"]
    assert rule["verbs"] == ["list"]
    assert {str(Path(file).parent) for file in files} == {"/hosts"}
    for container in (FIRST, HOSTS):
        assert container["command"][:2] == ["sh", "/script/hosts.sh"]
        assert {each["mountPath"] for each in container["volumeMounts"]} >= {"/hosts", "/script"}
    assert [len(each["command"]) for each in (FIRST, HOSTS)] == [2, 3], "once, and again and again"


def test_no_container_may_do_more_than_it_needs() -> None:
    assert POD["hostNetwork"] is True
    assert "hostPID" not in POD
    for container in (TAP, HOSTS, FIRST):
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"]["drop"] == ["ALL"]
        assert set(container["resources"]) == {"requests", "limits"}
        assert set(container["resources"]["limits"]) == {"cpu", "memory"}
    assert TAP["securityContext"]["capabilities"]["add"] == ["NET_RAW", "SETUID", "SETGID"]
    assert "add" not in HOSTS["securityContext"]["capabilities"]
    tokens = [each["name"] for each in POD["volumes"] if "projected" in each]
    assert POD["automountServiceAccountToken"] is False
    assert not {each["name"] for each in TAP["volumeMounts"]} & set(tokens), "kafkatap itself has no token"
    assert only("Namespace", WRITTEN)["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
