#!/usr/bin/env python3
"""Fetches pages in a sandbox that may reach only the hosts of the given addresses, and lists their titles and links.

    examples/scrape.py https://example.com/ …
"""
import json
import sys
from urllib.parse import urlsplit

from cloche import Cloche

SCRAPER = """
import html.parser, json, sys, urllib.request

class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.title, self.links, self.inside = "", [], False
    def handle_starttag(self, tag, attributes):
        self.inside = tag == "title"
        if tag == "a": self.links += [v for k, v in attributes if k == "href"]
    def handle_data(self, data):
        if self.inside: self.title += data
    def handle_endtag(self, tag):
        self.inside = False

for url in sys.argv[1:]:
    try:
        page = Page()
        page.feed(urllib.request.urlopen(url, timeout=20).read(1 << 20).decode("utf-8", "replace"))
        print(json.dumps({"url": url, "title": page.title.strip(), "links": page.links}))
    except OSError as e:
        print(json.dumps({"url": url, "error": str(e)}))
"""


def rule(url):
    """What the allowlist needs for a page: its host, and a port other than 80 and 443."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname


urls = sys.argv[1:]
if not urls:
    sys.exit(__doc__)
network = {"mode": "allow", "allow": sorted({rule(u) for u in urls}), "budget": {"bytes_in": "50M", "requests_per_minute": 60}}
with Cloche() as client, client.sandboxes.create(network=network, timeout="1h") as sandbox:
    sandbox.files.write("scraper.py", SCRAPER)
    seen = set(urls)
    while urls:
        done = sandbox.exec(["python3", "scraper.py", *urls], timeout="5m")
        pages = [json.loads(line) for line in done.stdout.splitlines()]
        for page in pages:
            print(page["url"], "-", page.get("title") or page["error"])
        urls = sorted({u for p in pages for u in p.get("links", []) if u.startswith("http")} - seen)
        seen.update(urls)
    for refusal in sandbox.why():  # links led there, and the allowlist did not
        print("refused:", refusal.to)
