"""Entries from files, whose format their content shows: CSV, hosts files, `kubectl get pods,svc,nodes -A -o json`, and
`aws ec2 describe-network-interfaces`.

Errors are ValueErrors that name the file, and the line or the item.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ..literals import read_moment
from .host_entry import ALWAYS_TO, INTERFACE, LONGEST_NAME, OWN, SHARED, HostEntry, host_entry
from .host_table import check

#: Names of columns in the first line of a CSV. A column with another name is a label.
_COLUMNS = {
    "address": "address", "ip": "address", "network": "address", "name": "name", "host": "name", "hostname": "name",
    "labels": "labels", "from": "from", "start": "from", "to": "to", "end": "to",
}  # fmt: skip
_WITHOUT_NAMES = ("address", "name", "labels", "from", "to")
_FORMATS = (
    "CSV (address,name,labels,from,to), a hosts file, the output of `kubectl get pods,svc,nodes -A -o json` or of `aws "
    "ec2 describe-network-interfaces`"
)


class HostFile(NamedTuple):
    """A file as it was read. Contents, not paths, go to other machines."""

    path: str
    content: bytes


def entries_of(files: Iterable[HostFile], utc: bool = False) -> list[HostEntry]:
    """The entries of all files, `check`ed. `utc`: times without a zone are in UTC, not local."""
    found: list[HostEntry] = []
    pods: list[HostEntry] = []
    for file in files:
        text = _text(file)
        if text.lstrip()[:1] in ("{", "["):
            of_file = list(_of_json(text, file.path))
        else:
            of_file = list(_of_lines(text, file.path, utc))
        if not of_file:
            raise ValueError(f"{file.path}: no address has a name. A file may be {_FORMATS}")
        for each in of_file:
            (pods if each.labels.get("kind") == "Pod" and each.kind == OWN else found).append(each)
    return check(_with_zones([*found, *_in_turn(pods)]))


def _with_zones(entries: Sequence[HostEntry]) -> list[HostEntry]:
    """The entries, in which pods without a zone have the labels of their node, which another file may list. Nodes of
    one name in several zones, as of two clusters, are left out."""
    nodes: dict[str, HostEntry] = {}
    several: set[str] = set()
    for entry in entries:
        if entry.labels.get("kind") == "Node" and entry.zone and nodes.setdefault(entry.name, entry).zone != entry.zone:
            several.add(entry.name)
    found = []
    for entry in entries:
        name = entry.labels.get("node", "") if entry.labels.get("kind") == "Pod" and entry.zone is None else ""
        node = None if name in several else nodes.get(name)
        found.append(entry if node is None else entry._replace(labels={**node.labels, **entry.labels}))
    return found


def zones_of(file: HostFile) -> list[HostEntry]:
    """Networks with their zones as names: lines with a network and its zone, or entries with a label that names it.
    Of equal networks the first one counts."""
    text = _text(file)
    if text.lstrip()[:1] in ("{", "["):
        entries = list(_of_json(text, file.path))
    elif _is_csv(text):
        entries = list(_of_lines(text, file.path, utc=True))
    else:
        entries = [e._replace(labels={"zone": e.name}) for e in _of_hosts(text, file.path, "a network and a zone", 2)]
    found = {(e.version, e.length, e.bits): e._replace(name=e.zone) for e in reversed(entries) if e.zone}
    if not found:
        raise ValueError(f"{file.path}: no line has a network and a zone")
    return list(reversed(found.values()))


def _text(file: HostFile) -> str:
    try:
        return file.content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{file.path}: not a text in UTF-8. A file may be {_FORMATS}") from None


# ---------------------------------------------------------------- lines


def _of_lines(text: str, path: str, utc: bool) -> Iterator[HostEntry]:
    if re.match(r"(---|apiVersion:|kind:|items:)", text.lstrip()):
        raise ValueError(f"{path}: this is YAML: write it with -o json")
    return _of_csv(text, path, utc) if _is_csv(text) else _of_hosts(text, path, "an address and a name")


def _is_csv(text: str) -> bool:
    first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    return "," in first.partition("#")[0]


def _of_hosts(text: str, path: str, what: str, most: int | None = None) -> Iterator[HostEntry]:
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) < 2 or len(words) > (most or len(words)):
            raise ValueError(f"{path}, line {number}: not {what}")
        yield _entry(f"{path}, line {number}", words[0], words[1])


def _of_csv(text: str, path: str, utc: bool) -> Iterator[HostEntry]:
    lines = csv.reader(text.splitlines())
    columns: Sequence[str] | None = None
    while True:
        try:
            cells = next(lines, None)
        except csv.Error as error:
            raise ValueError(f"{path}, line {lines.line_num}: {error}") from None
        if cells is None:
            return
        cells = [cell.strip() for cell in cells]
        if not any(cells) or cells[0].startswith("#"):
            continue
        if columns is None:
            columns = _header(cells)
            if columns is not None:
                continue
            columns = _WITHOUT_NAMES
        origin = f"{path}, line {lines.line_num}"
        if len(cells) > len(columns):
            raise ValueError(f"{origin}: {len(cells)} values for {len(columns)} columns ({', '.join(columns)})")
        row = dict(zip(columns, cells, strict=False))
        labels = _labels(row.get("labels", ""))
        labels |= {name: value for name, value in row.items() if name not in _WITHOUT_NAMES and value}
        yield _entry(
            origin, row.get("address", ""), row.get("name", ""), _time(row.get("from"), origin, utc),
            _time(row.get("to"), origin, utc), labels,
        )  # fmt: skip


def _header(cells: Sequence[str]) -> list[str] | None:
    """The columns that the first line names; None if it names none."""
    found = [_COLUMNS.get(cell.lower(), cell) for cell in cells]
    return found if "address" in found and "name" in found else None


def _labels(text: str) -> dict[str, str]:
    """`zone=a;team=shop`; a word without = is a label that is set."""
    pairs = (word.partition("=") for word in re.split(r"[;,\s]+", text) if word)
    return {name: value or "true" for name, _, value in pairs}


def _time(text: str | None, origin: str, utc: bool) -> int | None:
    if not text:
        return None
    try:
        moment = read_moment(text, utc)
    except ValueError as error:
        raise ValueError(f"{origin}: {error}") from None
    if not moment.is_absolute:
        raise ValueError(f"{origin}: {text!r} needs its date, such as 2026-11-21 15:10:39")
    return moment.ns


def _entry(
    origin: str, address: str, name: str, start: int | None = None, end: int | None = None,
    labels: Mapping[str, str] = MappingProxyType({}), kind: int = OWN,
) -> HostEntry:  # fmt: skip
    try:
        return host_entry(address, name, start, end, labels, origin, kind)
    except ValueError as error:
        raise ValueError(f"{origin}: {error}") from None


# ---------------------------------------------------------------- JSON


def _of_json(text: str, path: str) -> Iterator[HostEntry]:
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: this JSON is cut short or damaged: {error.msg}") from None
    except RecursionError:
        raise ValueError(f"{path}: this JSON is nested too deeply") from None
    except ValueError as error:  # a number with thousands of digits
        raise ValueError(f"{path}: {error}") from None
    if isinstance(whole, dict) and isinstance(whole.get("NetworkInterfaces"), list):
        return _of_interfaces(whole["NetworkInterfaces"], path)
    if isinstance(whole, dict) and "kind" in whole:
        return _of_kubernetes(whole, path)
    raise ValueError(f"{path}: this JSON has no Kubernetes items and no NetworkInterfaces. A file may be {_FORMATS}")


class _Item:
    """A JSON object, read without trust in it: what is missing, or of another type, is empty."""

    def __init__(self, value: Any) -> None:
        self.value: Mapping[str, Any] = value if isinstance(value, dict) else {}

    def __getitem__(self, name: str) -> _Item:
        return _Item(self.value.get(name))

    def text(self, name: str) -> str:
        found = self.value.get(name)
        return found if isinstance(found, str) else ""

    def items(self, name: str) -> list[_Item]:
        found = self.value.get(name)
        return [_Item(each) for each in found] if isinstance(found, list) else []

    def texts(self) -> dict[str, str]:
        return {name: value for name, value in self.value.items() if isinstance(value, str)}


def _of_kubernetes(whole: Mapping[str, Any], path: str) -> Iterator[HostEntry]:
    top = _Item(whole)
    kind = top.text("kind")
    items = top.items("items") if "items" in whole else [top]
    usual = kind.removesuffix("List")
    zone_of_node = {
        item["metadata"].text("name"): item["metadata"]["labels"].texts()
        for item in items
        if (item.text("kind") or usual) == "Node"
    }
    services: dict[str, list[HostEntry]] = {}
    for item in items:
        of_kind = _KINDS.get(item.text("kind") or usual)
        if of_kind is None:
            continue
        what, meta = item.text("kind") or usual, item["metadata"]
        name, namespace = meta.text("name"), meta.text("namespace")
        origin = f"{path}, {what} {f'{namespace}/' if namespace else ''}{name}"
        labels = meta["labels"].texts() | {"kind": what}
        if namespace:
            labels["namespace"] = namespace
        node = item["spec"].text("nodeName") if what == "Pod" else ""
        if node:
            labels |= {"node": node}
            labels = zone_of_node.get(node, {}) | labels
        full = name if namespace in ("", "default") else f"{name}.{namespace}"
        for address, how in of_kind(item):
            entry = _entry(origin, address, full, labels=labels, **how)
            if entry.kind == INTERFACE:
                services.setdefault(entry.network, []).append(entry)
            else:
                yield entry
    for same in services.values():
        yield same[0]._replace(name=", ".join(sorted({entry.name for entry in same}))[:LONGEST_NAME])


def _of_pod(item: _Item) -> Iterator[tuple[str, dict[str, Any]]]:
    status = item["status"]
    addresses = [ip.text("ip") for ip in status.items("podIPs")] or [status.text("podIP")]
    is_shared = item["spec"].value.get("hostNetwork") is True or status.text("hostIP") in addresses
    start, end = _utc(status.text("startTime")), None
    if status.text("phase") in ("Succeeded", "Failed"):
        over = [each["state"]["terminated"].text("finishedAt") for each in status.items("containerStatuses")]
        end = max((at for text in over if (at := _utc(text)) is not None), default=start)
    if end is not None and start is not None and end <= start:
        end = start + 1
    for address in filter(None, addresses):
        yield address, {"start": start, "end": end, "kind": SHARED if is_shared else OWN}


def _of_node(item: _Item) -> Iterator[tuple[str, dict[str, Any]]]:
    for each in item["status"].items("addresses"):
        if each.text("type") in ("InternalIP", "ExternalIP") and each.text("address"):
            yield each.text("address"), {}


def _of_service(item: _Item) -> Iterator[tuple[str, dict[str, Any]]]:
    """Addresses of load balancers, and external ones, may be those of nodes and of other services."""
    spec = item["spec"].value
    several = spec.get("clusterIPs")
    own = [spec.get("clusterIP"), *(several if isinstance(several, list) else ())]
    external = spec.get("externalIPs")
    shared = [*(external if isinstance(external, list) else ()),
              *(ingress.text("ip") for ingress in item["status"]["loadBalancer"].items("ingress"))]  # fmt: skip
    for found, how in ((own, {}), (shared, {"kind": INTERFACE})):
        for address in dict.fromkeys(ip for ip in found if isinstance(ip, str) and ip not in ("", "None")):
            yield address, how


_KINDS: Mapping[str, Callable[[_Item], Iterator[tuple[str, dict[str, Any]]]]] = {
    "Pod": _of_pod, "Node": _of_node, "Service": _of_service,
}  # fmt: skip


def _utc(text: str) -> int | None:
    try:
        return read_moment(text, utc=True).ns if text else None
    except ValueError:
        return None


def _in_turn(pods: Iterable[HostEntry]) -> Iterator[HostEntry]:
    """Pods, of which one has an address until the next one has it: lists of pods know no end of those that run. The
    same pod of several lists is one."""
    of_address: dict[tuple[int, int, int], dict[tuple[str, int], HostEntry]] = {}
    for pod in pods:
        mine = of_address.setdefault((pod.version, pod.length, pod.bits), {})
        before = mine.get((pod.name, pod.start))
        if before is None or pod.end < before.end:
            mine[pod.name, pod.start] = pod
    for mine in of_address.values():
        in_order = sorted(mine.values(), key=lambda pod: pod.start)
        for at, pod in enumerate(in_order):
            after = in_order[at + 1] if at + 1 < len(in_order) else None
            if after is not None and pod.start < after.start < pod.end:
                if pod.end == ALWAYS_TO:
                    pod = pod._replace(end=after.start)
                elif pod.end < after.end:
                    in_order[at + 1] = after._replace(start=pod.end)
            yield pod


def _of_interfaces(items: Iterable[Any], path: str) -> Iterator[HostEntry]:
    for item in map(_Item, items):
        tags = {tag.text("Key"): tag.text("Value") for tag in item.items("TagSet")}
        instance, own = item["Attachment"].text("InstanceId"), item.text("NetworkInterfaceId")
        name = tags.get("Name") or item.text("Description") or instance or own
        labels = {"zone": item.text("AvailabilityZone"), "instance": instance, "interface": own} | tags
        addresses = [item.text("PrivateIpAddress"), item["Association"].text("PublicIp")]
        for each in item.items("PrivateIpAddresses"):
            addresses += [each.text("PrivateIpAddress"), each["Association"].text("PublicIp")]
        addresses += [each.text("Ipv6Address") for each in item.items("Ipv6Addresses")]
        for address in dict.fromkeys(filter(None, addresses)):
            yield _entry(
                f"{path}, {own or name}", address, name, labels={k: v for k, v in labels.items() if v}, kind=INTERFACE
            )
