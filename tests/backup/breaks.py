#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: breaks.py SOURCE COPY FILE: copy src/backup/FILE with the switches of breaks.h in it.

Each row of the table is a rule of the protocol between creates and prunes: its break, the file, the exact text that
keeps the rule, and what the copy has instead. A text that is not found exactly once fails the build, so a change of the
sources cannot silently disarm the test; neither can a break without a row, or a row without a break."""
import pathlib
import re
import sys

TABLE = [
    ("IGNORE_SEEN", "prune/prune.c", """\
		if (!has_seen(s, p->old.marks[i].id))
""", """\
		if (!has_seen(s, p->old.marks[i].id) && !BROKEN(IGNORE_SEEN))
"""),
    ("NOT_READY_SEEN", "prune/prune.c", """\
	if (!s->ready)
		return false;
""", """\
	if (!s->ready)
		return BROKEN(NOT_READY_SEEN);
"""),
    ("SNAPSHOTS_FIRST", "prune/prune.c", """\
	rc = prune_sessions(p, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_snapshot_ids(b, &p->snapshots, &p->n_snapshots, err);
""", """\
	if (BROKEN(SNAPSHOTS_FIRST))
		rc = sl__bk_snapshot_ids(b, &p->snapshots, &p->n_snapshots, err);
	if (rc == 0)
		rc = prune_sessions(p, err);
	if (rc != 0)
		return rc;
	if (p->snapshots == NULL)
		rc = sl__bk_snapshot_ids(b, &p->snapshots, &p->n_snapshots, err);
"""),
    ("LEAVE_SILENT", "prune/prune.c", """\
		rc = remove_silent_sessions(p, err);
""", """\
		rc = BROKEN(LEAVE_SILENT) || BROKEN(REMOVE_LATE) ? 0 : remove_silent_sessions(p, err);
"""),
    ("REMOVE_LATE", "prune/prune.c", """\
	rc = sl__bk_marks_load(b, &p->all, err);
""", """\
	rc = BROKEN(REMOVE_LATE) ? remove_silent_sessions(p, err) : 0;
	if (rc == 0)
		rc = sl__bk_marks_load(b, &p->all, err);
"""),
    ("DELETE_AT_ONCE", "prune/plan.c", """\
	plan_small(p);
	return 0;
""", """\
	plan_small(p);
	for (size_t i = 0; i < p->view.packs.n && BROKEN(DELETE_AT_ONCE); i++)
		p->due[i] = p->due[i] || p->to_mark[i];
	return 0;
"""),
    ("DELETE_NEEDED", "prune/plan.c", """\
	p->due[i] = p->needed[i] == 0 && may_go""", """\
	p->due[i] = (p->needed[i] == 0 || BROKEN(DELETE_NEEDED)) && may_go"""),
    ("MARK_GOES_FIRST", "prune/apply.c", """\
	int rc = remove_due_packs(p, err);
	if (rc == 0)
		rc = remove_done_marks(p, err);
""", """\
	int rc = BROKEN(MARK_GOES_FIRST) ? remove_done_marks(p, err) : 0;
	if (rc == 0)
		rc = remove_due_packs(p, err);
	if (rc == 0 && !BROKEN(MARK_GOES_FIRST))
		rc = remove_done_marks(p, err);
"""),
    ("NO_SESSION_YET", "create/create.c", """\
	int rc = sl__bk_session_begin(c->b, &c->session, err);
	if (rc == 0)
		rc = sl__bk_index_for_writing(c->b, &c->session->seen, &c->index, err);
""", """\
	const struct bk_marks none = {.n = 0};
	int rc = 0;
	if (BROKEN(NO_SESSION_YET))
		rc = sl__bk_index_for_writing(c->b, &none, &c->index, err);
	if (rc == 0)
		rc = sl__bk_session_begin(c->b, &c->session, err);
	if (rc == 0 && c->index == NULL)
		rc = sl__bk_index_for_writing(c->b, &c->session->seen, &c->index, err);
"""),
    ("MARKS_FIRST", "repo/session.c", """\
	rc = announce(s, false, err);
	if (rc == 0)
		rc = sl__bk_marks_load(b, &s->seen, err);
""", """\
	if (BROKEN(MARKS_FIRST))
		rc = sl__bk_marks_load(b, &s->seen, err);
	if (rc == 0)
		rc = announce(s, false, err);
	if (rc == 0 && !BROKEN(MARKS_FIRST))
		rc = sl__bk_marks_load(b, &s->seen, err);
"""),
    ("USE_MARKED", "pack/packs.c", """\
(v->seen == NULL || !sl__bk_marks_have(v->seen, pack))""", """\
(v->seen == NULL || BROKEN(USE_MARKED) || !sl__bk_marks_have(v->seen, pack))"""),
    ("TRUST_PARENT", "create/create.c", """\
	if (c->check_parent)
""", """\
	if (BROKEN(TRUST_PARENT))
		c->check_parent = false;
	if (c->check_parent)
"""),
    ("SAME_NAMES", "pack/pack.c", """\
	p->len = BK_PACK_HEADER;
""", """\
	if (BROKEN(SAME_NAMES))
		memset(p->image + 8 + BK_NAME_BYTES, 0, BK_NAME_BYTES);
	p->len = BK_PACK_HEADER;
"""),
    ("PUBLISH_ANYWAY", "repo/session.c", """\
	if (stop_beat(s))
		return session_lost(err, s->id);
""", """\
	if (stop_beat(s) && !BROKEN(PUBLISH_ANYWAY))
		return session_lost(err, s->id);
"""),
    ("PUBLISH_ANYWAY", "repo/session.c", """\
BK_KIND_SNAPSHOT},
				   (struct bk_bytes){json, len}, SL_DRIVER_UPDATE, err);
""", """\
BK_KIND_SNAPSHOT},
				   (struct bk_bytes){json, len}, BROKEN(PUBLISH_ANYWAY) ? SL_DRIVER_REPLACE : SL_DRIVER_UPDATE, err);
"""),
    ("NO_RECHECK", "create/recheck.c", """\
	int rc = newer_marks_matter(&r, err);
""", """\
	int rc = BROKEN(NO_RECHECK) ? 0 : newer_marks_matter(&r, err);
"""),
]


def main(source, copy, file):
    header = pathlib.Path(__file__).with_name("breaks.h").read_text()
    breaks = set(re.findall(r"^\tBREAK_(\w+),", header, re.M)) - {"NOTHING"}
    rows = {name for name, _, _, _ in TABLE}
    if breaks != rows:
        sys.exit(f"breaks.py: breaks.h and the table differ: {' '.join(sorted(breaks ^ rows))}")
    text = pathlib.Path(source).read_text()
    n = 0
    for name, where, old, new in TABLE:
        if where != file:
            continue
        if text.count(old) != 1 or f"BROKEN({name})" not in new:
            sys.exit(f"breaks.py: {name}: {file} has {text.count(old)} times, not once:\n{old}")
        text = text.replace(old, new)
        n += 1
    if n == 0:
        sys.exit(f"breaks.py: no break of {file}")
    pathlib.Path(copy).write_text(f'#include "backup/breaks.h"\n#line 1 "src/backup/{file}"\n{text}')


main(*sys.argv[1:])
