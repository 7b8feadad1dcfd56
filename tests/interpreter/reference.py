"""A real ipykernel, and what it sends for a cell, in the terms of our kernels."""
import base64
import os
import queue

from jupyter_client.manager import KernelManager


class Reference:
    def __init__(self, cwd):
        self.manager = KernelManager(kernel_name='python3')
        self.manager.kernel_cmd = ['/usr/bin/python3', '-m', 'ipykernel_launcher', '-f', '{connection_file}']
        env = {k: v for k, v in os.environ.items() if not k.startswith(('PYTHON', 'CLOCHE', 'PYTEST'))}
        env['MPLBACKEND'] = 'module://matplotlib_inline.backend_inline'  # as its kernel specification has it
        self.manager.start_kernel(cwd=cwd, env=env, extra_arguments=['--HistoryManager.enabled=False'])
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def run(self, code, timeout=60):
        """{'stdout', 'stderr', 'results': [(is_main, {mime: value})], 'error': (name, value) or None}"""
        number = self.client.execute(code, allow_stdin=False, stop_on_error=False)
        out = {'stdout': '', 'stderr': '', 'results': [], 'error': None}
        idle = replied = False
        while not (idle and replied):
            if not replied:
                try:
                    reply = self.client.get_shell_msg(timeout=0.01 if not idle else timeout)
                    if reply['parent_header'].get('msg_id') == number:
                        replied = True
                        if reply['content']['status'] == 'error':
                            out['error'] = (reply['content']['ename'], reply['content']['evalue'])
                except queue.Empty:
                    pass
            if idle:
                continue
            message = self.client.get_iopub_msg(timeout=timeout)
            self._note(message, number, out)
            idle = message['parent_header'].get('msg_id') == number and message['msg_type'] == 'status' and \
                message['content']['execution_state'] == 'idle'
        if 'subprocess' in code or 'os.system' in code:  # what child processes print may follow the end
            try:
                while True:
                    self._note(self.client.get_iopub_msg(timeout=0.5), number, out)
            except queue.Empty:
                pass
        return out

    @staticmethod
    def _note(message, number, out):
        if message['parent_header'].get('msg_id') == number:
            kind, content = message['msg_type'], message['content']
            if kind == 'stream':
                out[content['name']] += content['text']
            elif kind in ('display_data', 'execute_result', 'update_display_data'):
                out['results'].append((kind == 'execute_result', dict(content['data'])))


def plain(mime):
    """Formats as they are compared: binary ones as bytes."""
    made = {}
    for kind, value in mime.items():
        if kind.startswith('image/') and kind != 'image/svg+xml' or kind == 'application/pdf':
            value = base64.b64decode(value)
        made[kind] = value
    return made
