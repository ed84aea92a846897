# SPDX-License-Identifier: Apache-2.0
"""sluice.yaml(5), from the table of settings; and what docs/configuration.md says of its sections."""
import re

import roff

# Who reads a section.
USED_BY = {
    "store": "The database of the server; a worker uses only `url`.",
    "server": "Address, folders, requests and the end.",
    "jobs": "The worker of `sluice up`, and `sluice worker`.",
    "types": "Settings of one type of job, with its name for TYPE; what is not set comes from `jobs`. A server uses only the priority.",
    "wal": "The log of that worker.",
    "coordinator": "Between the receiver of logs and the store.",
    "perf": "The threads of an export.",
    "export": "What `sluice export --config FILE.yaml` exports; a flag of the command wins.",
    "backup": "The repository of backups that a server shows and checks, when `repo` is set.",
    "retention": "What is deleted when it is too old. A limit that is set is kept in the store and applies to all its workers and servers.",
    "export_events": "The export of the store's events by a server, when `dir` is set.",
}


def expects(setting):
    """" (a whole number from 1 to 5)", or nothing where any text will do."""
    return "" if setting["kind"] in ("text", "path", "list") else f" ({setting['expects'].rstrip(',')})"


def entry(setting):
    default = f" Default {setting['default']}." if setting["default"] else ""
    flag = f", `--{setting['flag']}`" if setting["flag"] else ""
    return [".TP", roff.bold(setting["name"]), roff.line(f"{setting['help']}{expects(setting)}.{default}"), ".br",
            roff.marked(f"`{setting['env']}`{flag}" if setting["env"] else f"`--set {setting['section']}.{setting['name']}=VALUE`")]


def sections(settings):
    out = []
    for section in dict.fromkeys(s["section"] for s in settings):
        out += [f".SS {section}"]
        if section in USED_BY:
            out.append(roff.marked(USED_BY[section]))
        out += [line for s in settings if s["section"] == section for line in entry(s)]
    return out


def page(text, settings, tables):
    """man/sluice.yaml.5 with @title and @settings filled in."""
    lines = []
    for line in text.rstrip("\n").split("\n"):
        part = re.fullmatch(r'\.\\" @(.+)', line)
        if not part:
            lines.append(line)
        elif part[1] == "title":
            lines.append(roff.title("sluice.yaml", 5, tables.date, tables.source, "File Formats"))
        else:
            lines += sections(settings)
    return roff.page(lines)
