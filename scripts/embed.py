#!/usr/bin/python3
"""embed.py FILE OUT: FILE's bytes as numbers for a C initializer. What is JSON is checked and made compact first."""
import json
import sys

with open(sys.argv[1], 'rb') as f:
    data = f.read()
if sys.argv[1].endswith('.json'):
    data = json.dumps(json.loads(data), separators=(',', ':'), ensure_ascii=True).encode() + b'\n'
with open(sys.argv[2], 'w', encoding='ascii') as f:
    for i in range(0, len(data), 24):
        f.write(','.join(map(str, data[i:i + 24])) + ',\n')
