/* SPDX-License-Identifier: Apache-2.0 */
/* Findings of check and repair as lines or as one JSON object, printed as they come. */
#include "backupfindings.h"

#include "stop.h"
#include "text.h"

#include <stdlib.h>

static void finding_json(struct backupfindings *c, const struct sl_backup_finding *f)
{
	out_str(&c->cli->out, c->reported ? "," : "");
	out_json(&c->cli->out,
		 json_pack("{s:s, s:b, s:o, s:o, s:o, s:o}", "fault", sl_backup_fault_name(f->fault), "harmless",
			   f->harmless, "object", f->object ? text_json(f->object) : json_null(), "snapshot",
			   f->snapshot ? text_json(f->snapshot) : json_null(), "path",
			   f->path ? text_json(f->path) : json_null(), "text", text_json(f->reason.msg)));
}

static void finding_text(struct backupfindings *c, const struct sl_backup_finding *f)
{
	struct out *out = &c->cli->out;
	char line[1100];

	out_printf(out, "%s%s", f->harmless ? "note: " : "", sl_backup_fault_name(f->fault));
	if (f->object) {
		text_line(line, sizeof(line), f->object);
		out_printf(out, " %s", line);
	}
	if (f->snapshot)
		out_printf(out, ", snapshot %.8s", f->snapshot);
	if (f->path) {
		text_line(line, sizeof(line), f->path);
		out_printf(out, ", file %s", line);
	}
	text_line(line, sizeof(line), f->reason.msg);
	out_printf(out, "%s%s\n", line[0] ? ": " : "", line);
}

int backupfindings_add(const struct sl_backup_finding *f, void *ctx)
{
	struct backupfindings *c = ctx;

	if (c->json)
		finding_json(c, f);
	else
		finding_text(c, f);
	c->reported++;
	return cli_stopped(c->cli);
}

void backupfindings_begin(struct backupfindings *c)
{
	if (!c->json)
		return;
	out_str(&c->cli->out, "{\"repo\":");
	out_json(&c->cli->out, text_json(c->repo.path));
	out_str(&c->cli->out, ",\"findings\":[");
}

void backupfindings_end(struct backupfindings *c, json_t *rest)
{
	char *text = c->json ? json_dumps(rest, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;

	json_decref(rest);
	if (!c->json)
		return;
	out_str(&c->cli->out, "],");
	out_str(&c->cli->out, text ? text + 1 : "}");
	out_str(&c->cli->out, "\n");
	free(text);
}

int backupfindings_fail(struct backupfindings *c, const struct sl_err *err)
{
	backupfindings_end(
		c, json_pack("{s:b, s:s, s:o}", "ok", 0, "code", sl_err_name(err->code), "error", text_json(err->msg)));
	if (out_failed(&c->cli->out))
		return EXIT_OK; /* told at the end */
	return stop_requested() ? cli_interrupted(c->cli) : backuprepo_fail(&c->repo, err);
}
