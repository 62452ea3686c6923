#!/usr/bin/env python3
"""A small fake of a completion server, to try docs/llm.md: POST /v1/chat/completions.

Answers in the form of the real ones: plain JSON with `usage`, or, with `"stream": true`, server-sent
events whose last chunk has the usage (if `stream_options.include_usage` is set) and `data: [DONE]`.
A token is a word. The first line of output says where it listens; `--port 0` picks a free port.
"""

import argparse
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = "All rate limits are promises about the worst case so count what was really used".split()


class Completions(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path != "/v1/chat/completions":
            return self.respond(404, {"error": {"message": "there is /v1/chat/completions"}})
        try:
            request = json.loads(body)
            prompt = " ".join(message["content"] for message in request["messages"])
        except (ValueError, KeyError, TypeError):
            return self.respond(400, {"error": {"message": "not a chat completion request"}})
        most = request.get("max_tokens", 1000)
        words = (WORDS * (most // len(WORDS) + 1))[: min(most, self.server.longest)]
        usage = {
            "prompt_tokens": len(prompt.split()),
            "completion_tokens": len(words),
            "total_tokens": len(prompt.split()) + len(words),
        }
        model = request.get("model", "small")
        if request.get("stream"):
            wanted = request.get("stream_options") or {}
            return self.stream(model, words, usage if wanted.get("include_usage") else None)
        message = {"role": "assistant", "content": " ".join(words)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self.respond(200, {"model": model, "choices": [choice], "usage": usage})

    def respond(self, status, answer):
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, model, words, usage):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for word in words:
            choice = {"index": 0, "delta": {"content": word + " "}}
            self.event({"model": model, "choices": [choice], "usage": None})
            time.sleep(self.server.delay)
        if usage:
            self.event({"model": model, "choices": [], "usage": usage})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def event(self, data):
        self.chunk(b"data: " + json.dumps(data).encode() + b"\n\n")

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--delay", type=float, default=0.02, help="seconds between streamed tokens")
    parser.add_argument("--longest", type=int, default=100, help="tokens of the longest answer")
    args = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", args.port), Completions)
    server.delay, server.longest = args.delay, args.longest
    print(json.dumps({"url": "http://127.0.0.1:%d" % server.server_port}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
