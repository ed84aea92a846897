# SPDX-License-Identifier: Apache-2.0
"""The completions, in the shells themselves: a line is typed, the key for completion is pressed, and the line is compared."""

import json
import os
import pty
import select
import shutil
import subprocess

from clitest import ROOT, SLUICE, TIMEOUT, CliTest, main

# Typed after the key for completion: it shows the line as the shell has it, and begins a new one.
SHOW = {
    "bash": """bind -x '"\\C-]": printf "LINE<%s>\\n" "$READLINE_LINE"; READLINE_LINE='; PS1=""; """
            """bind 'set enable-bracketed-paste off'; bind 'set bell-style none'; . "$COMPLETION"; echo READY''\n""",
    "zsh": """unsetopt beep promptsp; PS1=""; fpath=("${COMPLETION:h}" $fpath); autoload -Uz compinit; compinit -u -D; """
           """show() { print -r -- "LINE<$BUFFER>"; BUFFER=; zle redisplay }; zle -N show; bindkey '^]' show; echo READY''\n""",
}
START = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}
NAMES = {"bash": "sluice", "zsh": "_sluice", "fish": "sluice.fish"}
LINES = [
    ("sluice wa", "sluice wal "),
    ("sluice jobs mig", "sluice jobs migrate "),
    ("sluice -q wal app", "sluice -q wal append "),
    ("sluice help prod", "sluice help production "),
    ("sluice help wal app", "sluice help wal append "),
    ("sluice wal append --win", "sluice wal append --window="),
    ("sluice worker --dra", "sluice worker --drain "),
    ("sluice wal recover --on-corruption=tr", "sluice wal recover --on-corruption=truncate "),
    ("sluice wal recover --on-corruption tr", "sluice wal recover --on-corruption truncate "),
    ("sluice export stat", "sluice export status "),
    ("sluice export --fol", "sluice export --follow "),
    ("sluice wal dump dem", "sluice wal dump demo.wal "),
    ("sluice worker --ca-file=dem", "sluice worker --ca-file=demo.wal "),
]


class Shell:
    """An interactive shell on its own terminal."""

    def __init__(self, name, folder, completion, env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(START[name][0], START[name], {**env, "COMPLETION": completion, "TERM": "xterm", "COLUMNS": "200"})
        self.seen = b""
        self.send(SHOW[name])
        self.until(b"READY\r")

    def send(self, text):
        os.write(self.fd, text.encode())

    def until(self, mark):
        while mark not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], TIMEOUT)
            if not ready:
                raise TimeoutError(f"the shell has not said {mark!r} but {self.seen!r}")
            self.seen += os.read(self.fd, 65536)
        before, _, self.seen = self.seen.partition(mark)
        return before

    def completed(self, line):
        self.send(line + "\t\x1d")
        self.until(b"LINE<")
        return self.until(b">\r").decode()

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


class Completions(CliTest):
    def setUp(self):
        super().setUp()
        self.tables = json.loads(self.ok("help", "--json").out)
        self.write("demo.wal", b"")

    def made(self, shell):
        if not shutil.which(shell):
            self.skipTest(f"{shell} is not installed")
        os.makedirs(self.path("made"), exist_ok=True)
        path = self.path("made", NAMES[shell])
        subprocess.run([os.path.join(ROOT, "scripts", "completions"), SLUICE, shell,
                        os.path.join(ROOT, "completions", f"sluice.{shell}"), path], check=True)
        return path

    def typed(self, shell):
        terminal = Shell(shell, self.dir, self.made(shell), self.env)
        self.addCleanup(terminal.close)
        for line, expected in LINES:
            with self.subTest(line=line):
                self.assertEqual(terminal.completed(line), expected)

    def test_bash_completes_a_line_as_it_is_typed(self):
        self.typed("bash")

    def test_zsh_completes_a_line_as_it_is_typed(self):
        self.typed("zsh")

    def test_fish_completes_a_line(self):
        path = self.made("fish")
        for line, expected in LINES:
            with self.subTest(line=line):
                r = subprocess.run(["fish", "--no-config", "-c", f"source {path}; complete -C '{line}'"], capture_output=True, text=True,
                                   check=True, cwd=self.dir, env=self.env)
                found = [word.split("\t")[0] for word in r.stdout.splitlines()]
                self.assertEqual(found, [expected.split()[-1]])

    def expected(self):
        """(command, its options as the shells write them)"""
        for c in self.tables["commands"]:
            options = [*c["options"], *self.tables["global_options"]]
            yield c["name"], {f"--{o['name']}{'' if o['kind'] == 'flag' else '='}" for o in options} | {
                f"-{o['letter']}" for o in options if o["letter"]}

    def everything(self, ask):
        """Every command and option is offered, and nothing else. ask(function, word): what it prints"""
        for name, options in self.expected():
            words = name.split()
            self.assertIn(words[-1], ask("commands", " ".join(words[:-1])))
            self.assertEqual(ask("options", name), options, name)
        for topic in self.tables["topics"]:
            self.assertIn(topic, ask("commands", "help"))

    def asker(self, shell, prefix):
        """All questions in one process: shells are slow to start."""
        path = self.made(shell)
        questions = [("commands", " ".join(n.split()[:-1])) for n, _ in self.expected()] + [("commands", "help")]
        questions += [("options", n) for n, _ in self.expected()]
        script = f"source {path}\n" + "".join(f"echo '@ {f} {w}'\n{prefix}{f} '{w}'\n" for f, w in questions)
        r = subprocess.run([shell, "-c", script], capture_output=True, text=True, check=True, env=self.env)
        answers = {}
        for part in r.stdout.split("@ ")[1:]:
            question, _, text = part.partition("\n")
            answers[question] = {w for line in text.splitlines() for w in line.split("\t")[0].split()}
        return lambda function, word: answers[f"{function} {word}"]

    def test_bash_knows_every_command_and_option(self):
        self.everything(self.asker("bash", "_sluice_"))

    def test_fish_knows_every_command_and_option(self):
        self.everything(self.asker("fish", "__sluice_"))

    def test_zsh_knows_every_command_and_option(self):
        path = self.made("zsh")
        script = f'_arguments() {{ :; }}; compdef() {{ :; }}; source {path} 2>/dev/null\n'
        for name, _ in self.expected():
            script += f"_sluice_arguments '{name}'; print -rl -- '@ {name}' $reply\n"
        r = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, check=True, env=self.env)
        said = {part.partition("\n")[0]: part.partition("\n")[2] for part in r.stdout.split("@ ")[1:]}
        for name, options in self.expected():
            found = set()
            for spec in said[name].splitlines():
                option = spec.split(")", 1)[-1] if spec.startswith("(") else spec.lstrip("*")
                if option.startswith("-"):
                    found.add(option.split("[")[0].replace("+", ""))
            self.assertEqual(found, options, name)


if __name__ == "__main__":
    main()
