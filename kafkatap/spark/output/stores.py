"""The names of stores and their options for deltalake, from paths and URIs as `captures.storage` knows them."""

from __future__ import annotations

import os
from urllib.parse import parse_qsl, unquote, urlsplit

from ...captures.storage import is_uri, mounted
from ...captures.store_settings import azure_of, s3_of
from ...captures.stores import scheme_of

#: Options that pyarrow reads and that mean nothing to deltalake.
_IGNORED = {"allow_bucket_creation", "allow_bucket_deletion", "check_directory_existence_before_creation", "user"}


def delta_location(path: str, name: str = "") -> tuple[str, dict[str, str]]:
    """The URI and the storage options of a folder, or of the folder `name` in it, for deltalake.

    ValueError if it has options that deltalake does not know.
    """
    path = mounted(path)
    below = f"/{name}" if name else ""
    if not is_uri(path):
        return os.path.abspath(path) + below, {}
    uri = urlsplit(path)
    scheme, host = scheme_of(uri.scheme), uri.netloc
    if scheme == "file":
        return unquote(uri.path).rstrip("/") + below, {}
    options, found = dict(parse_qsl(uri.query, keep_blank_values=True)), dict[str, str]()
    if scheme == "s3":
        store = s3_of(host, uri.query)
        host, options, found = host.rpartition("@")[2], dict(store.others), store.delta_options
        region = store.region or ("" if store.endpoint else _region_of(path))
        if region:
            found["AWS_REGION"] = region
    elif scheme in ("abfs", "abfss"):
        container, _, account = host.rpartition("@")
        scheme, host = "abfss", host.replace(".blob.", ".dfs.")
        found = azure_of(container, account).delta_options
    unknown = sorted(set(options) - _IGNORED)
    if unknown:
        raise ValueError(f"{path}: {unknown[0]} is no option of Delta tables")
    return f"{scheme}://{host}{uri.path.rstrip('/')}{below}", found


def _region_of(path: str) -> str:
    """The region of a bucket, as pyarrow finds it out."""
    from ...captures.storage import system_of

    return str(system_of(path)[0].region)
