# SPDX-License-Identifier: Apache-2.0
"""A client that knows openapi.json: every answer is compared with what the document says of it.

The checker knows what the document uses of JSON Schema: type, properties, required, additionalProperties, items, enum,
const, pattern, minimum, maximum, minLength, maxLength, minItems, maxItems, oneOf, format date-time, $ref. A word that it
does not know is a fault, so that nothing passes unseen.
"""

import json
import os
import re
import urllib.parse

from servertest import ROOT, ask

KNOWN = {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "pattern", "minimum",
         "maximum", "minLength", "maxLength", "minItems", "maxItems", "oneOf", "format", "$ref", "description", "default"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Mismatch(AssertionError):
    pass


class Document:
    def __init__(self, doc):
        self.doc = doc
        self.asked = set()  # (path, method)

    @classmethod
    def of_source(cls):
        with open(os.path.join(ROOT, "src", "server", "api", "openapi.json"), encoding="utf-8") as f:
            return cls(json.load(f))

    def follow(self, node):
        while isinstance(node, dict) and "$ref" in node:
            at = self.doc
            for part in node["$ref"].removeprefix("#/").split("/"):
                at = at[part]
            node = at
        return node

    def operations(self):
        return {(path, method.upper()) for path, methods in self.doc["paths"].items() for method in methods}

    # ---- values ----

    def check(self, schema, value, where="the body"):
        def wrong(what):
            raise Mismatch(f"{where}: {what}: {json.dumps(value)[:200]}")

        schema = self.follow(schema)
        unknown = set(schema) - KNOWN
        assert not unknown, f"{where}: the checker does not know {unknown}"
        if "oneOf" in schema:
            fits = [s for s in schema["oneOf"] if self.fits(s, value)]
            if len(fits) != 1:
                wrong(f"fits {len(fits)} of {len(schema['oneOf'])} alternatives")
        if "type" in schema and not self.has_type(schema["type"], value):
            wrong(f"is no {schema['type']}")
        if "enum" in schema and value not in schema["enum"]:
            wrong(f"is none of {schema['enum']}")
        if "const" in schema and value != schema["const"]:
            wrong(f"is not {schema['const']}")
        if isinstance(value, dict):
            self.check_object(schema, value, where, wrong)
        elif isinstance(value, list):
            if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
                wrong("has too few or too many items")
            for i, item in enumerate(value):
                self.check(schema.get("items", {}), item, f"{where}[{i}]")
        elif isinstance(value, str):
            self.check_text(schema, value, wrong)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
                wrong("is out of range")

    def check_object(self, schema, value, where, wrong):
        properties = schema.get("properties", {})
        missing = [k for k in schema.get("required", []) if k not in value]
        if missing:
            wrong(f"lacks {missing}")
        for name, v in value.items():
            if name in properties:
                self.check(properties[name], v, f"{where}.{name}")
            elif schema.get("additionalProperties", True) is False:
                wrong(f"has {name}, which is not in the document")

    @staticmethod
    def check_text(schema, value, wrong):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            wrong(f"is not like {schema['pattern']}")
        if schema.get("format") == "date-time" and not TIME.fullmatch(value):
            wrong("is no time")
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            wrong("is too short or too long")

    def fits(self, schema, value):
        try:
            self.check(schema, value)
        except Mismatch:
            return False
        return True

    @staticmethod
    def has_type(types, value):
        for t in types if isinstance(types, list) else [types]:
            if t == "integer" and isinstance(value, int) and not isinstance(value, bool):
                return True
            if t == "number" and isinstance(value, (int, float)) and not isinstance(value, bool):
                return True
            if t in TYPES and isinstance(value, TYPES[t]):
                return True
        return False

    # ---- answers ----

    def check_answer(self, path, method, answer):
        """The answer is one that the document has for this operation."""
        where = f"{method} {path} {answer.status}"
        responses = self.doc["paths"][path][method.lower()]["responses"]
        if str(answer.status) not in responses:
            raise Mismatch(f"{where} is not in the document: {answer.body[:300]!r}")
        response = self.follow(responses[str(answer.status)])
        for name, header in response.get("headers", {}).items():
            if header.get("required") and answer.headers.get(name) is None:
                raise Mismatch(f"{where} has no {name}")
        if "content" not in response:
            if answer.body:
                raise Mismatch(f"{where} has a body")
            return
        (kind, content), = response["content"].items()
        got = (answer.headers.get("Content-Type") or "").split(";")[0]
        if got != kind:
            raise Mismatch(f"{where} is {got}, not {kind}")
        if kind == "application/json":
            self.check(content["schema"], json.loads(answer.body), where)

    def check_request(self, path, method, query, body):
        """What a test sends, and succeeds with, must be in the document as well."""
        operation = self.doc["paths"][path][method.lower()]
        names = {p["name"] for p in map(self.follow, operation.get("parameters", [])) if p["in"] == "query"}
        extra = set(query) - names
        if extra:
            raise Mismatch(f"{method} {path}: the document has no parameter {extra}")
        if body is not None and "requestBody" in operation:
            self.check(operation["requestBody"]["content"]["application/json"]["schema"], body,
                       f"{method} {path}: the request")


class Api:
    """Requests by path of the document: api("GET", "/jobs/{id}", id=7, limit=3)."""

    def __init__(self, url, document, headers=None):
        self.url, self.document, self.headers = url.rstrip("/"), document, headers or {}

    def raw(self, method, path, body=None, status=200, query=None, **values):
        """The answer, compared with the document; its status must be this one."""
        query = dict(query or {})
        for name, value in values.items():
            if "{" + name + "}" not in path:
                query[name] = value
        real = re.sub(r"{(\w+)}", lambda m: urllib.parse.quote(str(values[m.group(1)]), safe=""), path)
        if query:
            real += "?" + urllib.parse.urlencode(query, doseq=True)
        answer = ask(self.url, "/api/v1" + real, method=method, body=body, headers=self.headers)
        if answer.status != status:
            raise AssertionError(f"{method} {real} {body}: {answer.status}, not {status}: {answer.body[:400]!r}")
        self.document.check_answer(path, method, answer)
        if status < 300:
            self.document.asked.add((path, method))
            self.document.check_request(path, method, query, None if isinstance(body, bytes) else body)
        return answer

    def __call__(self, method, path, body=None, status=200, **values):
        answer = self.raw(method, path, body, status, **values)
        return answer.json() if answer.body else None

    def refused(self, method, path, body=None, status=400, says="", **values):
        """An error with this in its message."""
        error = self(method, path, body, status, **values)["error"]
        assert says in error["message"], error
        return error

    def pages(self, path, of=None, **query):
        """The items of all pages, and in how many they came. of: what stands for the names in the path."""
        items, n, cursor = [], 0, None
        while True:
            page = self("GET", path, query={**query, "cursor": cursor} if cursor else query, **(of or {}))
            items += page["items"]
            n += 1
            cursor = page["next_cursor"]
            if cursor is None:
                return items, n
            assert n < 1000, "the pages have no end"
