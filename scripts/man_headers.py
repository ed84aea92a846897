# SPDX-License-Identifier: Apache-2.0
"""Manual pages of the public headers, from what they say themselves.

A header is read as the people who write it see it: a comment that says what it is for, then chunks, each a comment and the
declarations behind it. What cannot be read so is an error, not a gap in the page.
"""
import os
import re
import textwrap

import roff

WIDTH = 72  # with the indentation of a section, 79 columns
LABEL = re.compile(r"^(Thread safety|Ownership|Errors|Files|Guarantees?|Not guaranteed|Lifetimes?|Order|Locks?)(:|$)")
ITEM = re.compile(r"^ ?(-|[A-Z]\d+\.) +")
SECTION = re.compile(r"^/\* -{3,} (.*?) -{3,} \*/$")
ATTRIBUTES = re.compile(r"\b(SL_API|SL_MUST_CHECK|SL_PRINTF\([^)]*\)) *|(?<=\)) SL_PRINTF\([^)]*\)")
NAME = re.compile(r"\b(sl_\w+)\(")


def comment_lines(text):
    """The text of a comment, without its stars."""
    text = re.sub(r"^/\*\s?|\s*\*/$", "", text.strip())
    return [re.sub(r"^\s*\* ?", "", line.expandtabs(8)).rstrip() for line in text.split("\n")]


def prose(lines):
    """Paragraphs, lists and drawings of a comment."""
    out, para, drawing = [], [], []

    def end_paragraph():
        if para:
            label = LABEL.match(para[0])
            if label:
                para[0] = f"`{para[0][:label.end(1)]}`{para[0][label.end(1):]}"
            out.extend([".PP", *(roff.marked(text) for text in para)])
            para.clear()

    def end_drawing():
        if drawing:
            out.extend(roff.verbatim(textwrap.dedent("\n".join(drawing)).split("\n")))
            drawing.clear()

    in_item = False
    for text in lines:
        item = ITEM.match(text)
        indent = len(text) - len(text.lstrip())
        if not text:
            end_paragraph()
            end_drawing()
            in_item = False
        elif item:
            end_paragraph()
            end_drawing()
            mark = "\\(bu" if item[1] == "-" else item[1]
            out.extend([f".IP {mark} {2 if item[1] == '-' else 4}", roff.marked(text[item.end():])])
            in_item = True
        elif in_item and indent >= 2:
            out.append(roff.marked(text.strip()))
        elif indent >= 2:
            end_paragraph()
            drawing.append(text)
        else:
            end_drawing()
            if LABEL.match(text):
                end_paragraph()
            in_item = False
            para.append(text)
    end_paragraph()
    end_drawing()
    return out


def boxed(comment, indent):
    """A comment of any length on lines of its own."""
    return textwrap.wrap(f"/* {comment} */", WIDTH, initial_indent=indent, subsequent_indent=indent + " * ",
                         break_on_hyphens=False)


def split_comment(text):
    """(code, comment): what stands on a line, and the comment at its end or None."""
    m = re.match(r"^(\s*(?:.*?\S)??)\s*/\* (.*?) \*/$", text)
    return (m[1], m[2]) if m else (text, None)


def code(text):
    """Declarations for a page of 80 columns: long lines are broken, comments behind them go before them."""
    # A comment is one line, however many it was.
    text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"\s*\n\s*(\* ?)?", " ", m[0]), text, flags=re.S)
    out = []
    for whole in text.split("\n"):
        whole = whole.expandtabs(8)
        body, comment = split_comment(whole)
        indent = " " * (len(whole) - len(whole.lstrip()))
        if len(whole) <= WIDTH:
            out.append(whole)
            continue
        if comment:
            out += boxed(comment, indent)
        if body.strip():
            out += textwrap.wrap(body, WIDTH, subsequent_indent=indent + "    ", break_long_words=False, break_on_hyphens=False)
    return out


def wrapped(text):
    """A declaration, broken behind commas."""
    lines = [""]
    for part in re.split(r"(?<=, )", text):
        if lines[-1].strip() and len(lines[-1]) + len(part.rstrip()) > WIDTH:
            lines.append("    ")
        lines[-1] += part
    return [line.rstrip() for line in lines]


def declaration(text):
    """A function's declaration on as few lines as it needs, without what only a compiler reads."""
    text = ATTRIBUTES.sub("", text)
    if "{" in text or text.startswith("#"):
        return code(text)
    out = []
    for one in re.split(r"(?:(?<=;)|(?<=\*/))\n", text):
        function = re.match(r"([^/]*;)\s*(?:/\*(.*)\*/)?$", one, re.S)
        if function and NAME.search(one):
            whole, comment = " ".join(function[1].split()), " ".join((function[2] or "").split())
            short = comment and len(whole) + len(comment) + 7 <= WIDTH
            out += boxed(comment, "") if comment and not short else []
            out += [f"{whole} /* {comment} */"] if short else wrapped(whole)
        else:
            out += code(one)
    return out


def body_of(text):
    """What stands between the guards, without includes and what is for C++."""
    text = re.sub(r'#ifdef __cplusplus\n(extern "C" \{|\})\n#endif\n?', "", text)
    text = re.sub(r"^#include [^\n]*\n", "", text, flags=re.M)
    guard = re.search(r"^#ifndef (SLUICE_\w+_H)\n#define \1\n", text, re.M)
    end = text.rstrip().rfind("#endif")
    return text[guard.end():end].strip("\n")


def chunks(text):
    """(comment or None, code) in order; a comment at the left margin begins a chunk, and so does an empty line."""
    found, comment, lines, depth, in_comment = [], None, [], 0, False

    def end():
        nonlocal comment, lines
        if comment is not None or lines:
            found.append((comment, "\n".join(lines)))
        comment, lines = None, []

    pending = []
    for raw in text.split("\n"):
        if in_comment:
            pending.append(raw)
            if "*/" in raw:
                in_comment, comment = False, "\n".join(pending)
        elif raw.startswith("/*") and depth == 0:
            end()
            pending = [raw]
            in_comment = "*/" not in raw
            comment = None if in_comment else raw
        elif not raw.strip() and depth == 0:
            end()
        else:
            lines.append(raw)
            plain = re.sub(r"/\*.*?\*/", "", raw)
            depth += plain.count("{") - plain.count("}")
    end()
    return found


def heading(text):
    """What a chunk declares, for the line above it: functions, else the type, else the first name."""
    names = [n for n in dict.fromkeys(NAME.findall(re.sub(r"/\*.*?\*/", "", text, flags=re.S))) if not n.endswith("_fn")]
    kind = re.search(r"^(?:typedef )?((?:struct|enum|union) sl_\w+) \{", text, re.M)
    if kind:
        return kind[1]
    if names and not text.startswith("#define"):
        return ", ".join(names)
    macros = re.findall(r"^#define (\w+)", text, re.M)
    types = re.findall(r"^typedef .*?\b(sl_\w+)(?:;|\()", text, re.M)
    return ", ".join(dict.fromkeys(types + macros)) or None


def purpose(lines):
    """The first clause of a header's comment, for NAME."""
    text = " ".join(lines[:next((i for i, line in enumerate(lines) if not line), len(lines))])
    clause = re.split(r"[:.;](?: |$)", text, maxsplit=1)[0]
    if " " not in clause:  # "Jobs: a queue …"
        clause = re.split(r"[.;](?: |$)", text, maxsplit=1)[0]
    first = clause.split(" ", 1)[0]
    return clause if (first.isupper() and len(first) > 1) or first in ("Parquet", "Sluice") else clause[0].lower() + clause[1:]


def page_name(path):
    """adapter/sink.h: sluice_adapter_sink; that of the whole is the library's."""
    if path == "sluice.h":
        return "libsluice"
    return "sluice_" + re.sub(r"\.h$", "", path).replace("/", "_")


def functions(text):
    """The functions that a header declares."""
    return sorted(set(re.findall(r"^SL_API\b[^;{]*?\b(sl_\w+)\(", text, re.M)))


def opening(text):
    """A header's first comment: what it is for."""
    top = re.match(r"(?:/\* SPDX[^\n]*\n)?\s*(/\*.*?\*/)", text, re.S)
    lines = comment_lines(top[1])
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def interface(text):
    """What a header declares, with what it says of it."""
    out = [".SH INTERFACE"]
    for comment, body in chunks(body_of(text)):
        section = SECTION.match(comment) if comment else None
        if section:
            out.append(f".SH {roff.escape(section[1].upper())}")
            comment = None
        if body:
            head = heading(body)
            if head:
                out.append(f".SS {roff.escape(head)}")
            out += roff.verbatim(declaration(body))
        if comment:
            out += prose(comment_lines(comment))
    return out


def contents(headers):
    """What each header is for: the page of the whole declares nothing itself."""
    out = [".SH HEADERS"]
    for path, text in headers:
        if path != "sluice.h":
            out += [".TP", roff.bold(f"<sluice/{path}>"), roff.escape(purpose(opening(text)))]
    return out


def page(path, text, headers, date, source):
    """path is below include/sluice; headers are (path, text) of all of them."""
    lines = opening(text)
    name = page_name(path)
    out = ['.\\" Made from the header by scripts/man-pages.',
           roff.title(name, 3, date, source, "Library Functions"),
           ".SH NAME", f"{roff.escape(name)} \\- {roff.escape(purpose(lines))}",
           ".SH SYNOPSIS", ".nf", roff.bold(f"#include <sluice/{path}>"), "",
           roff.escape("cc FILE.c $(pkg-config --cflags --libs sluice)"), ".fi",
           ".SH DESCRIPTION", *prose(lines), *(contents(headers) if path == "sluice.h" else interface(text))]
    included = re.findall(r"^#include <sluice/([^>]+)>", text, re.M) + ["sluice.h"]
    out += roff.see_also(["sluice(1)", *sorted(page_name(i) + "(3)" for i in included if i != path)])
    return roff.page(out)


def headers(root):
    """(path below include/sluice, text), sorted."""
    base = os.path.join(root, "include", "sluice")
    for folder in (base, os.path.join(base, "adapter")):
        for name in sorted(os.listdir(folder)):
            if name.endswith(".h"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as f:
                    yield os.path.relpath(path, base), f.read()
