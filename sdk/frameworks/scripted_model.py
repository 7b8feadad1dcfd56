"""A server that speaks as much of Anthropic's Messages API and OpenAI's Responses API as a tool-calling loop needs.

It answers with a script, and keeps what it was asked. Each step is a text, or a list of calls (name, arguments).
"""
import http.server
import json
import threading


def anthropic(step, number):
    content = [{"type": "text", "text": step}] if isinstance(step, str) else [
        {"type": "tool_use", "id": f"toolu_{number}_{i}", "name": name, "input": arguments} for i, (name, arguments) in enumerate(step)]
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "scripted", "content": content,
            "stop_reason": "end_turn" if isinstance(step, str) else "tool_use", "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1}}


def openai(step, number):
    text = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": step, "annotations": []}]}
    output = [text] if isinstance(step, str) else [
        {"type": "function_call", "id": f"fc_{number}_{i}", "call_id": f"call_{number}_{i}", "name": name, "status": "completed",
         "arguments": json.dumps(arguments)} for i, (name, arguments) in enumerate(step)]
    return {"id": f"resp_{number}", "object": "response", "created_at": 0, "status": "completed", "model": "scripted",
            "output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None}


PATHS = {"/v1/messages": anthropic, "/v1/responses": openai}


class ScriptedModel:
    """`asked` has (path, headers, body) of each request."""

    def __init__(self, *steps):
        model = self
        self.steps, self.asked = list(steps), []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                model.asked.append((self.path, dict(self.headers), body))
                status, answer = 200, None
                if self.path in PATHS and model.steps:
                    answer = PATHS[self.path](model.steps.pop(0), len(model.asked))
                else:
                    status, answer = 400, {"error": {"message": f"the script has ended, or no path {self.path}"}}
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
