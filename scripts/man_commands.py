# SPDX-License-Identifier: Apache-2.0
"""Manual pages of the commands, from the command's own tables and what man/ adds to them.

A page is of the first word of its commands: sluice-wal(1) has all of `sluice wal …`. man/NAME.1 is its text, in which a
line .\\" @PART stands for what the tables say:

  @head               title and NAME
  @synopsis           every command of the page with its options
  @options [COMMAND]  the options of the command of that second word, less those that are said elsewhere; without a word,
                      all options of the command of one word
  @more OPTION        … up to @end: what is added to that option of the @options or @shared before it
  @shared             the options that several commands of the page have in common
  @commands           every command and its page; of sluice(1)
  @globals            the options of all commands
  @exit               the exit statuses
  @pages              SEE ALSO: every page

A command without a text of its own has a page that is made of the tables alone.
"""
import re

import roff


class Tables:
    """`sluice help --json`, and the date of the version."""

    def __init__(self, tables, date):
        self.tables, self.date = tables, date
        self.source = f"sluice {tables['version']}"
        self.commands = tables["commands"]

    def words(self):
        return list(dict.fromkeys(c["name"].split()[0] for c in self.commands if c["name"] != "help"))

    def of_word(self, word):
        return [c for c in self.commands if c["name"].split()[0] == word]

    def summary(self, word):
        """What NAME says of a page."""
        own = [c for c in self.commands if c["name"] == word]
        return own[0]["summary"] if own else self.tables["groups"][word]


def shown(option):
    """(roff, columns) of an option with its value."""
    value = "" if option["kind"] == "flag" else f"={roff.italic(option['arg'])}"
    width = len(option["name"]) + 2 + (len(option["arg"]) + 1 if value else 0)
    return roff.bold("--" + option["name"]) + value, width


def operands(command):
    names = command["operands"].split()
    needed = len(names) - command["optional_operands"]
    for i, name in enumerate(names):
        text = roff.italic(name.replace("…", "...")) if name[0].isupper() else roff.escape(name)
        yield (text if i < needed else f"[{text}]"), len(name) + (0 if i < needed else 2)


def synopsis(command):
    parts = list(operands(command))
    for option in command["options"]:
        text, width = shown(option)
        dots = "..." if option["repeat"] else ""
        parts.append((text, width) if option["required"] else (f"[{text}]{dots}", width + 2 + len(dots)))
    lines, line, columns = [], roff.bold("sluice " + command["name"]), 7 + len(command["name"])
    for text, width in parts:
        if columns + 1 + width > 71:
            lines.append(line)
            line, columns = "   ", 3
        line, columns = f"{line} {text}", columns + 1 + width
    return [*lines, line]


def option_entry(option):
    letter = roff.bold("-" + option["letter"]) + ", " if option["letter"] else ""
    return [".TP", letter + shown(option)[0], roff.line(re.sub(r" \(may be repeated\)$", "; may be repeated", option["text"]) + ".")]


def shared(commands):
    """Options that at least two commands of a page have, and mean the same by."""
    seen = {}
    for command in commands:
        for option in command["options"]:
            seen.setdefault((option["name"], option["text"]), []).append(option)
    return [found[0] for found in seen.values() if len(found) > 1]


class Page:
    """One page: what each @PART stands for."""

    def __init__(self, tables, word):
        self.t, self.word = tables, word
        self.commands = tables.of_word(word) if word else tables.commands
        self.name = f"sluice-{word}" if word else "sluice"
        self.elsewhere = []
        self.said = set()  # (command, option)

    def head(self, summary=None):
        return [roff.title(self.name, 1, self.t.date, self.t.source, "User Commands"), ".SH NAME",
                f"{roff.escape(self.name)} \\- {roff.escape(summary or self.t.summary(self.word))}"]

    def synopsis(self):
        return [".SH SYNOPSIS", ".nf", *(line for c in self.commands for line in synopsis(c)), ".fi"]

    def options(self, word, more):
        """Those of a command that are not said elsewhere, and those to which something is added here."""
        command = next(c for c in self.commands if c["name"].split()[1:] == ([word] if word else []))
        elsewhere = {(o["name"], o["text"]) for o in self.elsewhere} if word else set()
        return [o for o in command["options"] if (o["name"], o["text"]) not in elsewhere or o["name"] in more]

    def main(self):
        """The command of one word, of a page with others: its options are said once, under OPTIONS."""
        own = [c for c in self.commands if c["name"] == self.word]
        return own[0] if own and len(self.commands) > 1 else None

    def commands_list(self):
        out = []
        for word in self.t.words():
            names = [c["name"] for c in self.t.of_word(word)]
            out += [".TP", ", ".join(roff.bold(name) for name in names),
                    f"{roff.escape(self.t.summary(word)[0].upper() + self.t.summary(word)[1:])}; see",
                    f".BR {roff.escape('sluice-' + word)} (1)."]
        return [*out, ".TP", roff.bold("help"), "Explain a command or a topic, with examples; with",
                ".B \\-\\-json", "all tables as one JSON document."]

    def globals(self):
        return [line for o in self.t.tables["global_options"] for line in option_entry(o)]

    def exit(self):
        return [line for code, text in self.t.tables["exit_codes"].items()
                for line in (".TP", f".B {code}", roff.line(text[0].upper() + text[1:] + "."))]

    def pages(self):
        return roff.see_also([*(f"sluice-{w}(1)" for w in self.t.words()), "sluice.yaml(5)", "libsluice(3)"])

    def part(self, text):
        """The lines of a .\\" @PART."""
        name, _, argument = text.partition(" ")
        if name == "head":
            return self.head(argument or None)
        return {"synopsis": self.synopsis, "commands": self.commands_list, "globals": self.globals, "exit": self.exit,
                "pages": self.pages}[name]()

    def entries(self, text, more):
        """The lines of @options and @shared, with what @more adds."""
        name, _, argument = text.partition(" ")
        found = shared(self.commands) if name == "shared" else self.options(argument, more)
        unknown = set(more) - {o["name"] for o in found}
        if unknown:
            raise ValueError(f"{self.name}(1): {text} has no option {', '.join(sorted(unknown))}")
        self.said |= {(o["name"], o["text"]) for o in found}
        heading = [".SS Options of several commands"] if name == "shared" else []
        return heading + [line for o in found for line in [*option_entry(o), *more.get(o["name"], [])]]

    def expanded(self, text):
        source = iter(text.rstrip("\n").split("\n"))
        waiting, more = None, {}  # an @options, and the @more behind it
        for line in source:
            part = re.fullmatch(r'\.\\" @(.+)', line)
            if part and part[1].startswith("more "):
                more[part[1][5:]] = list(iter(lambda: next(source), '.\\" @end'))
                continue
            if waiting:
                yield from self.entries(waiting, more)
                waiting, more = None, {}
            if part and part[1].split()[0] in ("options", "shared"):
                waiting = part[1]
            else:
                yield from self.part(part[1]) if part else [line]
        if waiting:
            yield from self.entries(waiting, more)

    def filled(self, text):
        self.elsewhere = self.main()["options"] if self.main() else []
        if '\n.\\" @shared\n' in text:
            self.elsewhere = shared(self.commands)
        page = roff.page(list(self.expanded(text)))
        if self.said:  # else it says them in words of its own
            for command in self.commands:
                for option in command["options"]:
                    if (option["name"], option["text"]) not in self.said:
                        raise ValueError(f"{self.name}(1) does not say --{option['name']} of sluice {command['name']}")
        return page

    def made(self):
        """The page of a command that has no text of its own."""
        out = ['.\\" Made from the command\'s tables by scripts/man-pages.', *self.head(), *self.synopsis()]
        self.elsewhere = self.main()["options"] if self.main() else shared(self.commands)
        if len(self.commands) == 1 and self.commands[0]["name"] == self.word:
            out += [".SH DESCRIPTION", roff.line(self.commands[0]["description"]), ".SH OPTIONS", *self.entries("options", {})]
        else:
            out += [".SH COMMANDS"]
            for command in self.commands:
                second = command["name"].partition(" ")[2]
                out += [f".SS {roff.escape(second or self.word)}", roff.line(command["description"]),
                        *self.entries(f"options {second}".strip(), {})]
            out += [] if self.main() or not shared(self.commands) else self.entries("shared", {})
        out += [".SH EXIT STATUS", "As in", ".BR sluice (1).", ".SH EXAMPLES", ".nf"]
        out += [roff.line(line) for c in self.commands for line in c["example"].split("\n")] + [".fi"]
        return roff.page([*out, *roff.see_also(["sluice(1)"])])
