# SPDX-License-Identifier: Apache-2.0
"""The manual pages, as scripts/man-pages makes them of the tables, the headers and man/."""

import atexit
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from clitest import ROOT, SLUICE, CliTest, main

sys.path.insert(0, os.path.join(ROOT, "scripts"))
import man_commands  # noqa: E402
import man_headers  # noqa: E402


def plain(page):
    """A page without its fonts and escapes."""
    return re.sub(r"\\f[BIR]", "", page).replace("\\-", "-").replace("\\e", "\\")


class Manual(CliTest):
    made = None  # once for all tests

    def setUp(self):
        super().setUp()
        if Manual.made is None:
            Manual.made = tempfile.mkdtemp(prefix="sluice-test-")
            atexit.register(shutil.rmtree, Manual.made, ignore_errors=True)
            subprocess.run([os.path.join(ROOT, "scripts", "man-pages"), SLUICE, Manual.made], check=True)
        self.tables = json.loads(self.ok("help", "--json").out)

    def page(self, name):
        """The page of that name, through a page that only leads there."""
        with open(os.path.join(self.made, f"man{name[-1]}", name), encoding="ascii") as f:
            text = f.read()
        return self.page(os.path.basename(text.split()[1])) if text.startswith(".so ") else plain(text)

    def pages(self):
        for folder, _, names in os.walk(self.made):
            yield from (os.path.join(folder, name) for name in sorted(names))

    def test_every_command_has_a_page_with_all_its_options(self):
        for c in self.tables["commands"]:
            if c["name"] == "help":
                continue
            page = self.page(f"sluice-{c['name'].replace(' ', '-')}.1")
            synopsis = re.search(rf"(?ms)^sluice {c['name']}( .*?)?(?=^sluice |^\.fi)", page).group(0)
            for o in c["options"]:
                with self.subTest(command=c["name"], option=o["name"]):
                    self.assertRegex(synopsis, rf"--{o['name']}\b")
                    self.assertRegex(page, rf"(?m)^\.TP\n(-., )?--{o['name']}(=.*)?$")

    def shown(self):
        """(document, command, option) of every option that a document shows with a command."""
        documents = [os.path.join(f, n) for f, _, names in os.walk(os.path.join(ROOT, "docs")) for n in names if n.endswith(".md")]
        names = {c["name"] for c in self.tables["commands"]}
        for path in [os.path.join(ROOT, "README.md"), *sorted(documents)]:
            with open(path, encoding="utf-8") as f:
                found = re.findall(r"\bsluice ([a-z]+)( [a-z]+)?\b((?: [^\n`|;&]*)?)", f.read())
            for first, second, rest in found:
                name = first + second if first + second in names else first
                for option in re.findall(r"(?<![\w-])--([a-z][a-z-]+)", rest.split(" -- ")[0]) if name in names else ():
                    yield os.path.relpath(path, ROOT), name, option

    def test_every_option_that_a_document_shows_is_there(self):
        common = {o["name"] for o in self.tables["global_options"]}
        have = {c["name"]: common | {o["name"] for o in c["options"]} for c in self.tables["commands"]}
        shown = set(self.shown())
        self.assertGreater(len(shown), 50)
        self.assertEqual([s for s in sorted(shown) if s[2] not in have[s[1]]], [])

    def test_the_first_page_has_every_command_option_and_exit_status(self):
        top = self.page("sluice.1")
        for c in self.tables["commands"]:
            self.assertRegex(top, rf"(?m)^(.*, )?{c['name']}(,.*)?$")
        for o in self.tables["global_options"]:
            self.assertRegex(top, rf"(?m)^(-., )?--{o['name']}(=.*)?$")
        for code in self.tables["exit_codes"]:
            self.assertRegex(top, rf"(?m)^\.B {code}$")

    def test_every_setting_is_in_the_page_of_the_configuration_file(self):
        page = self.page("sluice.yaml.5")
        for line in self.ok("config", "list", "--json").text.splitlines():
            s = json.loads(line)
            section = page.split(f".SS {s['section']}\n", 1)[1].split("\n.SS ", 1)[0]
            self.assertRegex(section, rf"(?m)^\.TP\n{s['name']}\n.*\n.br\n{s['env'] or '--set types.' + s['name']}\b")

    def test_every_public_function_has_a_page_that_declares_it(self):
        for path, text in man_headers.headers(ROOT):
            names = man_headers.functions(text)
            self.assertEqual(len(re.findall(r"^SL_API ", text, re.M)), len(names), path)
            for name in names:
                with self.subTest(function=name):
                    page = self.page(name + ".3")
                    self.assertIn(f"#include <sluice/{path}>", page)
                    self.assertRegex(page, rf"(?m)^[^/]*\b{name}\(")

    def test_the_words_of_a_header_are_in_its_page(self):
        for path, text in man_headers.headers(ROOT):
            page = self.page(man_headers.page_name(path) + ".3")
            said = set(re.findall(r"\w+", re.sub(r"\\\[u[0-9A-F]{4,}\]", " ", page)))
            for comment in re.findall(r"/\*.*?\*/", man_headers.body_of(text), re.S):
                missing = set(re.findall(r"\b[A-Za-z_]\w+", re.sub(r"[^\x00-\x7f]", " ", comment))) - said
                if not re.match(r"/\* -{3,}", comment):
                    self.assertEqual(missing, set(), path)

    def test_every_page_has_the_version_and_is_formatted_without_a_warning(self):
        for tool in (["groff", "-ww", "-man", "-Tutf8"], ["mandoc", "-Tlint", "-Wwarning"]):
            if not shutil.which(tool[0]):
                self.skipTest(f"{tool[0]} is not installed")
            for path in self.pages():
                with open(path, encoding="ascii") as f:
                    text = f.read()
                if text.startswith(".so "):
                    self.assertTrue(os.path.exists(os.path.join(self.made, text.split()[1])), path)
                    continue
                self.assertIn(f'"sluice {self.tables["version"]}"', text)
                r = subprocess.run([*tool, path], capture_output=True, text=True, check=False)
                self.assertEqual(r.stderr + (r.stdout if tool[0] == "mandoc" else ""), "", path)

    def test_a_command_without_its_own_text_has_a_page_of_its_tables(self):
        tables = man_commands.Tables(self.tables, "2026-11-01")
        for word in ("wal", "export", "enqueue"):
            page = plain(man_commands.Page(tables, word).made())
            for c in tables.of_word(word):
                self.assertIn(c["description"].split(" ", 1)[0], page)
                for o in c["options"]:
                    self.assertRegex(page, rf"(?m)^\.TP\n(-., )?--{o['name']}(=.*)?$")

    def test_a_text_that_leaves_an_option_out_is_refused(self):
        page = man_commands.Page(man_commands.Tables(self.tables, "2026-11-01"), "cron")
        with self.assertRaisesRegex(ValueError, "does not say --"):
            page.filled('.\\" @head\n.\\" @synopsis\n.\\" @options add\n')
        with self.assertRaisesRegex(ValueError, "no option frob"):
            page.filled('.\\" @options add\n.\\" @more frob\nx\n.\\" @end\n')


if __name__ == "__main__":
    main()
