/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots and entries as text and as JSON. */
#include "backupshow.h"

#include "base/base.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

enum { SHORT_ID = 8 };

const char *backupshow_join(char *to, size_t size, const char *const *items, size_t n)
{
	size_t used = 0;

	to[0] = '\0';
	/* Each item is escaped; what does not fit is cut. */
	for (size_t i = 0; i < n && used < size - 1; i++) {
		char clean[512];
		int len;

		text_line(clean, sizeof(clean), items[i]);
		len = snprintf(to + used, size - used, "%s%s", i ? ", " : "", clean);
		used += len > 0 && (size_t)len < size - used ? (size_t)len : size - used - 1;
	}
	return to;
}

/* ---- snapshots ---- */

void backupshow_table(struct table *table, struct out *out, bool decisions)
{
	static const struct table_column columns[] = {
		{"KEEP", TABLE_LEFT},  {"RULES", TABLE_TEXT},    {"ID", TABLE_LEFT},
		{"TIME", TABLE_LEFT},  {"HOST", TABLE_TEXT},     {"FILES", TABLE_RIGHT},
		{"SIZE", TABLE_RIGHT}, {"WRITTEN", TABLE_RIGHT}, {"PATHS", TABLE_TEXT},
	};

	size_t skipped = decisions ? 0 : 2;

	table_begin(table, out, columns + skipped, SL_COUNT(columns) - skipped);
}

void backupshow_row(struct table *table, const struct sl_backup_snapshot *s)
{
	char when[TEXT_TIME_BYTES], bytes[TEXT_TIME_BYTES], paths[600], tags[300], problems[TEXT_COUNT_BYTES];

	table_cell(table, "%.*s", SHORT_ID, s->id);
	table_cell(table, "%s", text_moment(when, table->out, s->time_ms));
	table_cell(table, "%s", s->host);
	table_cell(table, "%" PRIu64, s->files);
	table_cell(table, "%s", text_bytes(bytes, s->bytes));
	table_cell(table, "%s", text_bytes(bytes, s->physical_bytes));
	table_cell(table, "%s%s%s%s%s%s%s", backupshow_join(paths, sizeof(paths), s->paths, s->n_paths),
		   s->n_tags ? "  [" : "", s->n_tags ? backupshow_join(tags, sizeof(tags), s->tags, s->n_tags) : "",
		   s->n_tags ? "]" : "", s->problems ? "  (" : "",
		   s->problems ? text_count(problems, s->problems, "problem") : "", s->problems ? ")" : "");
}

void backupshow_details(struct out *out, const struct sl_backup_snapshot *s)
{
	char when[TEXT_TIME_BYTES], a[TEXT_TIME_BYTES], b[TEXT_TIME_BYTES], line[2048];

	out_printf(out, "snapshot   %s\n", s->id);
	out_printf(out, "time       %s\n", text_moment(when, out, s->time_ms));
	text_line(line, sizeof(line), s->host);
	out_printf(out, "host       %s\n", line);
	for (size_t i = 0; i < s->n_paths; i++) {
		text_line(line, sizeof(line), s->paths[i]);
		out_printf(out, "path       %s\n", line);
	}
	if (s->n_tags)
		out_printf(out, "tags       %s\n", backupshow_join(line, sizeof(line), s->tags, s->n_tags));
	if (s->parent[0])
		out_printf(out, "parent     %s\n", s->parent);
	out_printf(out, "files      %" PRIu64 " of %" PRIu64 " entries, %s\n", s->files, s->entries,
		   text_bytes(a, s->bytes));
	out_printf(out, "new        %s, %s written\n", text_bytes(a, s->new_bytes), text_bytes(b, s->physical_bytes));
	out_printf(out, "problems   %" PRIu64 "\n", s->problems);
	text_line(line, sizeof(line), s->version);
	out_printf(out, "made in    %.1f s by sluice %s\n", (double)s->took_ms / 1000, line);
}

static json_t *list_json(const char *const *items, size_t n)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, text_json(items[i]));
	return list;
}

json_t *backupshow_json(const struct sl_backup_snapshot *s)
{
	char when[TEXT_TIME_BYTES];

	return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:o}", "snapshot", s->id,
			 "time", text_time(when, s->time_ms), "host", text_json(s->host), "parent",
			 s->parent[0] ? text_json(s->parent) : json_null(), "paths", list_json(s->paths, s->n_paths),
			 "tags", list_json(s->tags, s->n_tags), "entries", text_number(s->entries), "files",
			 text_number(s->files), "bytes", text_number(s->bytes), "new_bytes", text_number(s->new_bytes),
			 "physical_bytes", text_number(s->physical_bytes), "problems", text_number(s->problems),
			 "seconds", (double)s->took_ms / 1000, "version", text_json(s->version));
}

/* ---- entries ---- */

#define YEAR_1 (-62135596800)
#define YEAR_10000 253402300800

/* As text_time has it; beyond four digits of year "@SECONDS", as date(1) takes it. */
static const char *entry_time(char to[TEXT_TIME_BYTES], const struct sl_backup_entry *e)
{
	if (e->mtime_s >= YEAR_1 && e->mtime_s < YEAR_10000)
		return text_time(to, e->mtime_s * 1000 + e->mtime_ns / 1000000);
	(void)snprintf(to, TEXT_TIME_BYTES, "@%" PRId64, e->mtime_s);
	return to;
}

void backupshow_entry(struct out *out, const struct sl_backup_entry *e)
{
	static const char kinds[] = "?-dl-pcb", bits[] = "rwxrwxrwx";
	size_t kind = (size_t)e->type < sizeof(kinds) - 1 ? (size_t)e->type : 0;
	char mode[11] = "", when[TEXT_TIME_BYTES];

	/* "drwxr-xr-x", "-rwsr-xr-t": three bits each for owner, group and others; the special bits take the place of
	 * the x. */
	mode[0] = kinds[kind];
	for (int i = 0; i < 9; i++)
		mode[1 + i] = e->mode & (0400u >> i) ? bits[i] : '-';
	if (e->mode & 04000)
		mode[3] = e->mode & 0100 ? 's' : 'S';
	if (e->mode & 02000)
		mode[6] = e->mode & 010 ? 's' : 'S';
	if (e->mode & 01000)
		mode[9] = e->mode & 01 ? 't' : 'T';
	out_printf(out, "%s %5" PRIu32 " %5" PRIu32 " ", mode, e->uid, e->gid);
	/* Devices have numbers instead of a size. */
	if (e->type == SL_BACKUP_CHAR || e->type == SL_BACKUP_BLOCK)
		out_printf(out, "%7u, %4u", major(e->rdev), minor(e->rdev));
	else
		out_printf(out, "%13" PRIu64, e->size);
	out_printf(out, e->mtime_s >= YEAR_1 && e->mtime_s < YEAR_10000 ? " %.19sZ " : " %20s ", entry_time(when, e));
	text_name(out, e->path);
	if (e->target != NULL) {
		out_str(out, e->type == SL_BACKUP_HARDLINK ? " = " : " -> ");
		text_name(out, e->target);
	}
	out_str(out, "\n");
}

/* A name that is not UTF-8 is shown as well as it can be, and its bytes beside that. */
static void set_bytes(json_t *object, const char *name, const char *text)
{
	json_t *shown = text_json(text);
	char key[32];

	if (shown != NULL && strcmp(json_string_value(shown), text) != 0) {
		size_t n = strlen(text);
		json_t *bytes;
		char *to = malloc(2 * n + 1);

		bytes = to != NULL ? json_string(text_hex(to, text, n)) : NULL;
		free(to);
		(void)snprintf(key, sizeof(key), "%s_hex", name);
		json_object_set_new(object, key, bytes);
	}
	json_object_set_new(object, name, shown);
}

json_t *backupshow_entry_json(const struct sl_backup_entry *e)
{
	static const char *const types[] = {"?", "file", "dir", "symlink", "hardlink", "fifo", "char", "block"};
	const char *type = (size_t)e->type < sizeof(types) / sizeof(types[0]) ? types[e->type] : "?";
	char when[TEXT_TIME_BYTES], mode[8];
	json_t *j;

	(void)snprintf(mode, sizeof(mode), "%04o", e->mode & 07777);
	j = json_pack("{s:s, s:s, s:o, s:o, s:o, s:s, s:I, s:I}", "type", type, "mode", mode, "uid",
		      text_number(e->uid), "gid", text_number(e->gid), "size", text_number(e->size), "time",
		      entry_time(when, e), "mtime_s", (json_int_t)e->mtime_s, "mtime_ns", (json_int_t)e->mtime_ns);
	set_bytes(j, "path", e->path);
	if (e->target != NULL)
		set_bytes(j, "target", e->target);
	if (e->type == SL_BACKUP_CHAR || e->type == SL_BACKUP_BLOCK)
		json_object_set_new(j, "rdev", text_number(e->rdev));
	if (e->xattrs)
		json_object_set_new(j, "xattrs", text_number(e->xattrs));
	return j;
}
