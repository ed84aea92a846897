# SPDX-License-Identifier: Apache-2.0
"""scripts/embed-web: names follow contents, and what cannot be served is refused (TAP)."""
import gzip
import os
import re
import subprocess
import sys
import tempfile

ROOT = sys.argv[1]
EMBED = os.path.join(ROOT, "scripts/embed-web")
PAGE = '<html><head><script type="module" src="/assets/js/a.js"></script></head></html>'
SITE = {"index.html": PAGE, "js/a.js": 'import { b } from "./b.js";\nb();\n', "js/b.js": "export const b = 1; // caf\u00e9 ?? \\\\ \"\n",
        "icon.svg": "<svg/>"}


def embed(files, chart="var Chart;"):
    """(exit code, standard error, {url: (plain, packed)}) of a site."""
    with tempfile.TemporaryDirectory() as tmp:
        for name, text in files.items():
            path = os.path.join(tmp, "web", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
        with open(os.path.join(tmp, "chart.js"), "w", encoding="utf-8") as f:
            f.write(chart)
        out, dep = os.path.join(tmp, "out.c"), os.path.join(tmp, "out.d")
        done = subprocess.run([EMBED, out, dep, os.path.join(tmp, "web"), os.path.join(tmp, "chart.js")], capture_output=True, text=True)
        if done.returncode != 0:
            assert not os.path.exists(out), "an output was left behind"
            return done.returncode, done.stderr, {}
        with open(out, encoding="ascii") as f:
            source = f.read()
        with open(dep, encoding="utf-8") as f:
            assert "js/b.js" in f.read(), "a file is missing from the dependencies"
        return 0, "", assets(source)


def literal(text):
    """The bytes of adjacent C strings."""
    body = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text))
    return re.sub(rb"\\([0-7]{3})|\\(.)", lambda m: bytes([int(m[1], 8)]) if m[1] else m[2], body.encode("ascii"))


def assets(source):
    strings = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
    rows = re.findall(r'\{"([^"]+)", "[^"]+", "[^,]+", "[^,]+",\s*' + strings + r", (\d+),\s*" + strings + r", (\d+)\}", source)
    found = {}
    for url, plain, n, packed, m in rows:
        found[url] = (literal(plain), literal(packed))
        assert (len(found[url][0]), len(found[url][1])) == (int(n), int(m)), f"lengths of {url}"
    return found


def by_stem(found, stem):
    return next(u for u in found if u.startswith(stem))


def contents_are_kept_byte_for_byte():
    _, _, found = embed(SITE)
    plain, packed = found[by_stem(found, "/assets/js/b.")]
    assert plain == SITE["js/b.js"].encode()
    assert all(gzip.decompress(p) == raw for raw, p in found.values())


def names_hold_a_hash_and_imports_follow_them():
    _, _, found = embed(SITE)
    a, b = by_stem(found, "/assets/js/a."), by_stem(found, "/assets/js/b.")
    assert re.fullmatch(r"/assets/js/a\.[0-9a-f]{12}\.js", a)
    assert f'"./{os.path.basename(b)}"'.encode() in found[a][0]
    assert a.encode() in found["/"][0]


def a_change_of_an_import_renames_those_who_import_it():
    _, _, one = embed(SITE)
    _, _, two = embed({**SITE, "js/b.js": "export const b = 2;\n"})
    assert by_stem(one, "/assets/js/a.") != by_stem(two, "/assets/js/a.")
    assert by_stem(one, "/assets/icon.") == by_stem(two, "/assets/icon.")


def the_same_input_gives_the_same_output():
    assert embed(SITE) == embed(SITE)


def modules_are_fetched_ahead_but_the_charts_are_not():
    _, _, found = embed(SITE)
    page = found["/"][0].decode()
    assert page.count("modulepreload") == 2 and "chart" not in page


def imports_in_a_circle_are_refused():
    code, err, _ = embed({**SITE, "js/b.js": 'import "./a.js";\nexport const b = 1;\n'})
    assert code != 0 and "circle" in err, err


def a_missing_file_is_refused():
    code, err, _ = embed({**SITE, "js/a.js": 'import "./c.js";\n'})
    assert code != 0 and "js/c.js" in err, err


def a_file_of_unknown_type_is_refused():
    code, err, _ = embed({**SITE, "notes.txt": "x"})
    assert code != 0 and "notes.txt" in err, err


CASES = [contents_are_kept_byte_for_byte, names_hold_a_hash_and_imports_follow_them, a_change_of_an_import_renames_those_who_import_it,
         the_same_input_gives_the_same_output, modules_are_fetched_ahead_but_the_charts_are_not, imports_in_a_circle_are_refused,
         a_missing_file_is_refused, a_file_of_unknown_type_is_refused]

print(f"1..{len(CASES)}")
bad = 0
for number, case in enumerate(CASES, 1):
    try:
        case()
        print(f"ok {number} - {case.__name__}")
    except Exception as e:  # a case that raises has failed, whatever it raised
        bad = 1
        print(f"not ok {number} - {case.__name__}\n# {e!r}")
sys.exit(bad)
