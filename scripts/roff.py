# SPDX-License-Identifier: Apache-2.0
"""Text as manual pages have it: in ASCII, with the signs that roff reads itself escaped."""
import re


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("...", "\0").replace("…", "\0").replace("\0", "...")
    return "".join(c if ord(c) < 128 else f"\\[u{ord(c):04X}]" for c in text)


def line(text):
    """A line of a page: one that begins with a control character is text all the same."""
    text = escape(text)
    return "\\&" + text if text[:1] in (".", "'") else text


def bold(text):
    return f"\\fB{escape(text)}\\fR"


def italic(text):
    return f"\\fI{escape(text)}\\fR"


def marked(text):
    """A line in which `words` and name(1) are set off."""
    parts = re.split(r"(`[^`]+`|\b[\w.-]+\([1-8]\))", text)
    out = []
    for part in parts:
        name = re.fullmatch(r"([\w.-]+)(\([1-8]\))", part)
        if part.startswith("`") and len(part) > 2:
            out.append(bold(part[1:-1]))
        elif name:
            out.append(bold(name[1]) + name[2])
        else:
            out.append(escape(part))
    joined = "".join(out)
    return "\\&" + joined if joined[:1] in (".", "'") else joined


def verbatim(lines):
    """Lines that keep their breaks."""
    return [".PP", ".nf", *(line(text) if text else "" for text in lines), ".fi"]


def title(name, section, date, source, manual):
    return f'.TH {escape(name.upper())} {section} "{date}" "{source}" "{manual}"'


def see_also(pages):
    pages = list(pages)
    out = [".SH SEE ALSO"]
    for i, page in enumerate(pages):
        name, section = page.rsplit("(", 1)
        out.append(f".BR {escape(name)} ({section}" + ("," if i + 1 < len(pages) else ""))
    return out


def page(lines):
    """The lines of a page as its text. A paragraph begins by itself behind a heading, and a heading needs something below."""
    out = []
    for text in lines:
        if text == ".PP" and out and out[-1].startswith((".SH ", ".SS ", ".PP")):
            continue
        if text.startswith(".SH ") and out and out[-1].startswith(".SH "):
            out.pop()
        out.append(text)
    return "\n".join(out) + "\n"
