"""A small object store with the protocol of S3, in memory, on the loopback interface. One bucket.

    with s3_server() as uri:
        uri("tables")     # s3://bucket/tables with the options to reach it

It knows what pyarrow and deltalake use: get, head, put (also `If-None-Match: *`), uploads in parts, list and delete. It
can insist on an access key and a session token; signatures are not checked. It is a process of its own, because
deltalake waits for answers without releasing Python's lock.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bucket"
#: In place of an access key: only requests without a signature.
ANONYMOUS = "-"
_DATE = "Sat, 21 Nov 2026 04:00:00 GMT"


class S3Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, key: str = "", token: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.credentials = key, token
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    server: S3Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        pass

    def _request(self) -> tuple[str, dict[str, str], bytes]:
        """Key, query and body."""
        url = urlsplit(self.path)
        _, _, key = unquote(url.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        body = self._body()
        if (self.headers.get("x-amz-content-sha256") or "").startswith("STREAMING-"):
            body = _unchunked(body)
        return key, query, body

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = bytearray()
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(found)

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        length = headers.pop("length", str(len(body)))
        for name, value in {"Content-Length": length, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _fail(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def parse_request(self) -> bool:
        """Refuse requests to other buckets, and with other keys."""
        if not super().parse_request():
            return False
        key, token = self.server.credentials
        signed = re.search(r"Credential=([^/]*)/", self.headers.get("Authorization") or "")
        bucket = unquote(urlsplit(self.path).path).lstrip("/").partition("/")[0]
        if key not in ("", ANONYMOUS) and (signed is None or signed[1] != key):
            refused = 403, "InvalidAccessKeyId"
        elif token and self.headers.get("x-amz-security-token") != token:
            refused = 403, "InvalidToken"
        elif key == ANONYMOUS and signed is not None:
            refused = 403, "AccessDenied"
        elif bucket != BUCKET:
            refused = 404, "NoSuchBucket"
        else:
            return True
        self._body()
        self._fail(*refused)
        return False

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        key, query, _ = self._request()
        if not key:
            self._answer(200, _listed(self.server.objects, query), Content_Type="application/xml")
            return
        data = self.server.objects.get(key)
        if data is None:
            self._fail(404, "NoSuchKey")
            return
        known = {"ETag": f'"{md5(data).hexdigest()}"', "Last_Modified": _DATE}
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        if wanted is None:
            self._answer(200, data, **known, length=str(len(data)))
            return
        first, last = wanted.groups()
        begin = int(first) if first else max(len(data) - int(last), 0)
        end = min(int(last) + 1, len(data)) if first and last else len(data)
        place = f"bytes {begin}-{end - 1}/{len(data)}"
        self._answer(206, data[begin:end], **known, Content_Range=place)

    def do_PUT(self) -> None:
        key, query, body = self._request()
        with self.server.lock:
            if "uploadId" in query:
                self.server.uploads[query["uploadId"]][int(query["partNumber"])] = body
            elif self.headers.get("If-None-Match") == "*" and key in self.server.objects:
                self._fail(412, "PreconditionFailed")
                return
            elif key:
                self.server.objects[key] = body
        self._answer(200, ETag=f'"{md5(body).hexdigest()}"')

    def do_POST(self) -> None:
        key, query, body = self._request()
        with self.server.lock:
            if "delete" in query:
                names = [unquote(name) for name in re.findall(r"<Key>(.*?)</Key>", body.decode())]
                for name in names:
                    self.server.objects.pop(name, None)
                deleted = "".join(f"<Deleted><Key>{escape(name)}</Key></Deleted>" for name in names)
                self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())
                return
            if "uploads" in query:
                upload = f"upload-{len(self.server.uploads)}"
                self.server.uploads[upload] = {}
                answer = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            else:
                parts = self.server.uploads[query["uploadId"]]
                self.server.objects[key] = b"".join(parts[n] for n in sorted(parts))
                answer = "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
        self._answer(200, answer.encode(), Content_Type="application/xml")

    def do_DELETE(self) -> None:
        key, _, _ = self._request()
        self.server.objects.pop(key, None)
        self._answer(204)


def _unchunked(body: bytes) -> bytes:
    """The content of a body in chunks with signatures or trailers."""
    found, at = bytearray(), 0
    while True:
        line = body.index(b"\r\n", at)
        size = int(body[at:line].partition(b";")[0], 16)
        if not size:
            return bytes(found)
        found += body[line + 2 : line + 2 + size]
        at = line + 2 + size + 2


def _listed(objects: dict[str, bytes], query: dict[str, str]) -> bytes:
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    after = query.get("start-after", "")
    files, folders = [], set()
    for key in sorted(objects):
        if not key.startswith(prefix) or key <= after:
            continue
        rest = key[len(prefix) :]
        if delimiter and delimiter in rest:
            folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
            continue
        size = len(objects[key])
        files.append(
            f"<Contents><Key>{escape(quote(key) if query.get('encoding-type') else key)}</Key><Size>{size}</Size>"
            f"<LastModified>2026-11-21T04:00:00.000Z</LastModified><ETag>x</ETag></Contents>"
        )
    prefixes = [f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders)]
    count = f"<KeyCount>{len(files) + len(folders)}</KeyCount><IsTruncated>false</IsTruncated>"
    return f"<ListBucketResult>{count}{''.join(files + prefixes)}</ListBucketResult>".encode()


@contextmanager
def s3_server() -> Iterator[Callable[[str], str]]:
    """Start the server; yield a function that makes URIs of keys."""
    with s3_endpoint() as endpoint:
        options = f"endpoint_override={endpoint}&scheme=http&region=us-east-1"
        yield lambda key: f"s3://key:secret@{BUCKET}/{key}?{options}"


@contextmanager
def s3_endpoint(key: str = "", token: str = "") -> Iterator[str]:
    """Start a server that accepts only this access key and session token ("": any); yield its host and port."""
    command = [sys.executable, "-m", "tests.support.s3_server", key, token]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], text=True) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


if __name__ == "__main__":
    serving = S3Server(*sys.argv[1:])
    print(serving.server_port, flush=True)
    serving.serve_forever()
