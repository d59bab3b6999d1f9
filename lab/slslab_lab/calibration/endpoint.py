"""An HTTPS endpoint on loopback that stands in for S3, to measure the client's CPU time.

    python -m slslab_lab.calibration.endpoint CERTIFICATE ELEMENTS

It answers a get with an array of ELEMENTS float32 ones in NumPy's format and the checksum that S3 would send. It reads
a put and discards it. It prints its port, and stops when its standard input is closed.
"""

import base64
import io
import ssl
import sys
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from slslab.host.service_process import serve


class _Server(ThreadingHTTPServer):
    def __init__(self, elements: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        buffer = io.BytesIO()
        np.save(buffer, np.ones(elements, np.float32))
        self.object = buffer.getbuffer()
        self.checksum = base64.b64encode(zlib.crc32(self.object).to_bytes(4, "big")).decode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._head(self.server.object.nbytes, ("x-amz-checksum-crc32", self.server.checksum))
        self.wfile.write(self.server.object)

    def do_PUT(self) -> None:
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if "Content-Length" in self.headers:
            self.rfile.read(int(self.headers["Content-Length"]))
        else:
            while size := int(self.rfile.readline(), 16):
                self.rfile.read(size + 2)
            self.rfile.readline()
        self._head(0)

    def handle_expect_100(self) -> bool:
        return True

    def _head(self, size: int, *headers: tuple[str, str]) -> None:
        self.send_response(200)
        for name, value in (("ETag", '"0"'), ("Content-Length", str(size)), *headers):
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _running() -> Iterator[dict[str, int]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1])
    with _Server(int(sys.argv[2])) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {"port": server.server_port}
        server.shutdown()


if __name__ == "__main__":
    serve(_running())
