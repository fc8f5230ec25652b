"""A receiver of webhooks: it verifies the signature of each with the library standardwebhooks, and prints what it got."""

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

webhook = Webhook(os.environ["WEBHOOK_SECRET"])
seen = set()  # a real receiver keeps this where it keeps its data


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            webhook.verify(body, dict(self.headers))
        except WebhookVerificationError as error:
            print(f"refused: {error}", flush=True)
            return self.answer(401, b"wrong signature")
        id = self.headers["webhook-id"]
        if id not in seen:  # the same delivery may come twice
            seen.add(id)
            print(body.decode(), flush=True)
        self.answer(200, b"thanks")

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver)
print(f"listening on {server.server_port}", flush=True)
server.serve_forever()
