#!/usr/bin/python3
"""Builds the OpenAPI document from the table of routes and from what describes them.

    scripts/openapi.py ROUTES.c FOLDER OUT

ROUTES.c (src/api/native/routes.c) is the table that requests are routed by. FOLDER (src/api/native/openapi) holds a JSON
file per noun with `operations` (by the name of the route's handler), `parameters` and `schemas`; common.json holds what
belongs to no noun. The schema Reason is made from src/base/reason.h (scripts/reasons.py). `resources` of a noun says which schemas name something that paths have as parameters: an operation that
makes one gets a link to every operation on it. `nulls` of a schema: its optional fields may be null. An operation is an Operation Object of OpenAPI 3.1 without what the route says already. From the route
come path and method, tag (the file's name), path parameters, security, `x-scope`, and the errors that every route of its
kind can answer; `errors` of an operation lists the statuses that are its own.

A route without a description, a description without a route, and a reference that leads nowhere are errors.

Without arguments it writes docs/openapi.json.
"""
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import reasons

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROUTES = os.path.join(ROOT, 'src/api/native/routes.c')
FOLDER = os.path.join(ROOT, 'src/api/native/openapi')
OUT = os.path.join(ROOT, 'docs/openapi.json')
WIDTH = 120

ROUTE = re.compile(r'ROUTE\(\s*(\w+),\s*"([^"]+)",\s*(\w+),\s*(\w+),\s*([^)]*)\)')


class Bad(Exception):
    """Something that does not fit together, in words for whoever changed it."""


class Route:
    def __init__(self, method, pattern, scope, handler, flags):
        self.method, self.pattern, self.scope, self.handler = method.lower(), pattern, scope.lower(), handler
        self.flags = {f.strip() for f in flags.split('|')} - {'0'}

    def __str__(self):
        return f'{self.method.upper()} {self.pattern}'

    def parameters(self):
        """The path's parameters, each with the part before it: [("sandboxes", "id"), ("execs", "x")]."""
        parts = self.pattern.split('/')
        return [(parts[i - 1], part[1:-1]) for i, part in enumerate(parts) if part.startswith('{')]

    def errors(self, op):
        """Statuses of errors that do not depend on what the operation is."""
        found = {400, 500}
        if self.scope != 'none':
            found |= {401, 403, 429}
        if self.parameters():
            found.add(404)
        if 'ROUTE_WAKES' in self.flags:
            found |= {409, 422, 502, 503}
        if self.method not in ('get', 'delete') and 'ROUTE_NO_DISK' not in self.flags:
            found.add(503)
        if 'application/json' in op.get('requestBody', {}).get('content', {}):
            found.add(413)
        return found


def read_routes(path):
    with open(path, encoding='utf-8') as f:
        text = f.read()
    routes = [Route(*m) for m in ROUTE.findall(text)]
    if not routes or len(routes) != text.count('ROUTE('):
        raise Bad(f'{path}: {text.count("ROUTE(")} routes, of which {len(routes)} can be read')
    return routes


def no_duplicates(pairs):
    keys = [k for k, _ in pairs]
    for k in keys:
        if keys.count(k) > 1:
            raise Bad(f'"{k}" is there twice')
    return dict(pairs)


def read_folder(folder):
    """{noun: its file's content}"""
    found = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith('.json'):
            continue
        with open(os.path.join(folder, name), encoding='utf-8') as f:
            try:
                found[name[:-len('.json')]] = json.load(f, object_pairs_hook=no_duplicates)
            except (ValueError, Bad) as e:
                raise Bad(f'{name}: {e}') from e
    return found


def merge(nouns, kind):
    """Parameters or schemas of all nouns; a name is there once."""
    found = {}
    for noun, content in nouns.items():
        for name, value in content.get(kind, {}).items():
            if name in found:
                raise Bad(f'{noun}.json: {kind} "{name}" is also in another file')
            found[name] = value
    return found


def operation(route, tag, op, common, parameters):
    """What the document says of a route."""
    op = dict(op)
    streams = 'ROUTE_STREAMS' in route.flags
    answers = op.pop('responses')
    shown = any(s == '101' or 'text/event-stream' in a.get('content', {}) for s, a in answers.items())
    if streams != shown:
        raise Bad(f'{route}: the route says {"" if streams else "not "}ROUTE_STREAMS, the description differs')
    for status in sorted(route.errors(op) | set(op.pop('errors', []))):
        if str(status) in answers:
            continue
        if str(status) not in common['errors']:
            raise Bad(f'{route}: no response in common.json for {status}')
        answers[str(status)] = {'$ref': '#/components/responses/' + common['errors'][str(status)]}
    given = []
    for noun, name in route.parameters():
        own = [key for key in (f'{noun}_{name}', name) if key in parameters]
        if not own:
            raise Bad(f'{route}: no parameter "{name}" or "{noun}_{name}" describes {{{name}}}')
        given.append({'$ref': '#/components/parameters/' + own[0]})
    given += op.pop('parameters', [])
    whole = {'operationId': op.pop('operationId'), 'tags': [tag], **op}
    if given:
        whole['parameters'] = given
    if 'requestBody' in whole:
        whole['requestBody'] = whole.pop('requestBody')
    whole['responses'] = dict(sorted(answers.items()))
    whole['security'] = [{'bearer': []}] if route.scope != 'none' else []
    if route.scope != 'none':
        whole['x-scope'] = route.scope
    return whole


def or_null(schema):
    """The schema, or null."""
    if '$ref' in schema:
        rest = {k: v for k, v in schema.items() if k != '$ref'}
        return {**rest, 'oneOf': [{'$ref': schema['$ref']}, {'type': 'null'}]}
    for kind in ('oneOf', 'anyOf'):
        if kind in schema:
            return {**schema, kind: [*schema[kind], {'type': 'null'}]}
    if 'const' in schema:
        rest = {k: v for k, v in schema.items() if k != 'const'}
        return {**rest, 'oneOf': [{'const': schema['const']}, {'type': 'null'}]}
    schema = {**schema, 'type': [schema['type'], 'null']}
    if 'enum' in schema:
        schema['enum'] = [*schema['enum'], None]
    return schema


def spell_nulls(thing, inside=False):
    """@thing with `nulls` spelled out, in the schemas that have it and those written inside of them."""
    if isinstance(thing, list):
        return [spell_nulls(x, inside) for x in thing]
    if not isinstance(thing, dict):
        return thing
    inside = inside or 'nulls' in thing
    whole = {k: spell_nulls(v, inside) for k, v in thing.items() if k != 'nulls'}
    if inside and whole.get('type') == 'object' and 'properties' in whole:
        whole['properties'] = {k: v if k in whole.get('required', []) else or_null(v) for k, v in whole['properties'].items()}
    return whole


def make_links(doc, nouns):
    """components/links, and references to them in the answers of what makes a resource."""
    links, used = {}, set()
    operations = [(method, op) for item in doc['paths'].values() for method, op in item.items()]
    path_names = {key: p['name'] for key, p in doc['components']['parameters'].items() if p['in'] == 'path'}

    def of_path(op):
        keys = (p['$ref'].split('/')[-1] for p in op.get('parameters', []) if '$ref' in p)
        return {k for k in keys if k in path_names}

    for resource in (r for content in nouns.values() for r in content.get('resources', [])):
        keys = set(resource['parameters'])
        targets = [op['operationId'] for _, op in operations if of_path(op) == keys]
        for name in targets:
            links[name] = {'operationId': name, 'parameters': {path_names[k]: v for k, v in resource['parameters'].items()}}
        for method, op in operations:
            if method not in ('post', 'put') or (method == 'post' and keys <= of_path(op)):
                continue
            for status in ('200', '201'):
                answer = op['responses'].get(status, {})
                schema = answer.get('content', {}).get('application/json', {}).get('schema', {})
                if schema.get('$ref') == '#/components/schemas/' + resource['schema']:
                    answer['links'] = {n: {'$ref': '#/components/links/' + n} for n in targets if n != op['operationId']}
                    used |= set(answer['links'])
    return {name: link for name, link in links.items() if name in used}


def walk(thing):
    yield thing
    for child in thing.values() if isinstance(thing, dict) else thing if isinstance(thing, list) else ():
        yield from walk(child)


def check_references(doc):
    used = {x['$ref'] for x in walk(doc) if isinstance(x, dict) and isinstance(x.get('$ref'), str)}
    there = {f'#/components/{kind}/{name}' for kind, all_of in doc['components'].items() for name in all_of
             if kind != 'securitySchemes'}
    for ref in sorted(used - there):
        raise Bad(f'{ref} leads nowhere')
    for ref in sorted(there - used):
        raise Bad(f'{ref} is not used')


def build(routes, nouns):
    nouns = spell_nulls(nouns)
    common = nouns['common']
    described = {}
    for noun, content in nouns.items():
        for handler, op in content.get('operations', {}).items():
            if handler in described:
                raise Bad(f'{noun}.json: {handler} is described in {described[handler][0]}.json, too')
            described[handler] = (noun, op)
    missing = [f'{r} ({r.handler})' for r in routes if r.handler not in described]
    if missing:
        raise Bad('routes without a description: ' + ', '.join(missing))
    unknown = sorted(set(described) - {r.handler for r in routes})
    if unknown:
        raise Bad('descriptions without a route: ' + ', '.join(unknown))
    parameters = merge(nouns, 'parameters')
    paths = {}
    for r in routes:
        paths.setdefault(r.pattern, {})[r.method] = operation(r, *described[r.handler], common, parameters)
    doc = {**common['document'], 'paths': paths,
           'components': {'securitySchemes': common['securitySchemes'], 'headers': merge(nouns, 'headers'),
                          'parameters': parameters, 'responses': merge(nouns, 'responses'), 'schemas': {**merge(nouns, 'schemas'), 'Reason': reasons.schema()},
                          'links': {}}}
    tags = {t['name'] for t in doc['tags']}
    for noun in nouns:
        if noun != 'common' and noun not in tags:
            raise Bad(f'{noun}.json: no tag "{noun}" in common.json')
    doc['components']['links'] = make_links(doc, nouns)
    check_references(doc)
    return doc


def layout(thing, indent=0, room=0):
    """JSON in which what fits into a line is one. @room: what stands before and behind it on its line."""
    line = json.dumps(thing, ensure_ascii=False)
    if len(line) + indent + room <= WIDTH or not isinstance(thing, (dict, list)) or not thing:
        return line
    inner = ' ' * (indent + 1)
    if isinstance(thing, list):
        items, ends = [layout(v, indent + 1, 1) for v in thing], '[]'
    else:
        items = [f'{json.dumps(k)}: {layout(v, indent + 1, len(json.dumps(k)) + 3)}' for k, v in thing.items()]
        ends = '{}'
    return ends[0] + '\n' + ',\n'.join(inner + x for x in items) + '\n' + ' ' * indent + ends[1]


def generate(routes=ROUTES, folder=FOLDER):
    return layout(build(read_routes(routes), read_folder(folder))) + '\n'


def main():
    routes, folder, out = sys.argv[1:] or (ROUTES, FOLDER, OUT)
    try:
        text = generate(routes, folder)
    except (Bad, OSError) as e:
        sys.exit(f'openapi.py: {e}')
    with open(out, 'w', encoding='utf-8') as f:
        f.write(text)


if __name__ == '__main__':
    main()
