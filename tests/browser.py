"""A visitor of a page in a real Chromium, with files from a server of the test"""
import json, shutil, subprocess, threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Queue

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None)

class Server(SimpleHTTPRequestHandler):
    "Files of a folder; what is posted goes into a queue"
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {'.mjs': 'text/javascript'}
    def __init__(self, *args, said, **kwargs):
        self.said = said
        super().__init__(*args, **kwargs)
    def do_POST(self):
        self.said.put(json.loads(self.rfile.read(int(self.headers['Content-Length']))))
        self.send_response(204)
        self.end_headers()
    def log_message(self, *args): pass

def visited(site, tmp_path, page='page'):
    "What the page says to a visitor"
    said = Queue()
    server = ThreadingHTTPServer(('127.0.0.1', 0), partial(Server, directory=site, said=said))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    where = f'http://127.0.0.1:{server.server_port}/{page}.html'
    chromium = subprocess.Popen([CHROMIUM, '--headless=new', '--no-sandbox', '--disable-gpu',
                                 f'--user-data-dir={tmp_path}', where], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
    try: return said.get(timeout=120)
    except Empty: pytest.fail('the page has said nothing for two minutes')
    finally:
        chromium.terminate()
        chromium.wait()
        server.shutdown()
