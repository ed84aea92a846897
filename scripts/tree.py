# SPDX-License-Identifier: Apache-2.0
"""The files of the project, for the checks: what git tracks or would track, or without git all but build folders."""
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def files(root=ROOT):
    """Paths relative to root, sorted."""
    if os.path.exists(os.path.join(root, ".git")):
        listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                capture_output=True)
        if listed.returncode == 0:
            names = {n.decode() for n in listed.stdout.split(b"\0") if n}
            return sorted(n for n in names if os.path.isfile(os.path.join(root, n)))
    found = []
    for folder, dirs, names in os.walk(root):
        dirs[:] = [d for d in dirs if not d.startswith("build") and d not in (".git", "__pycache__", "node_modules")]
        found += [os.path.relpath(os.path.join(folder, n), root) for n in names]
    return sorted(found)


def read(path, root=ROOT):
    """Text, or None for a file that is not text."""
    with open(os.path.join(root, path), "rb") as f:
        data = f.read()
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
