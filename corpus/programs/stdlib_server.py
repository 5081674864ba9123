#!/usr/bin/python3
"""Python's own http.server: it writes an answer's header and body apart, and leaves Nagle's algorithm on.

With --buffered the answer is written at once, which is the remedy.
"""
import http.server
import sys

BODY = b"x" * 400


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1 if "--buffered" in sys.argv else 0

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)
        self.wfile.flush()

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Answer).serve_forever()
