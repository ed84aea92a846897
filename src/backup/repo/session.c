/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions. The order is what keeps a snapshot from missing a block (F4, F5):
 *
 *   create: session, not ready ─▶ marks ─▶ session, ready, with the marks seen ─▶ list packs, index ─▶ … ─▶ publish
 *   prune:  mark ─▶ (a later run) sessions: every live one is ready and has seen the mark? ─▶ delete
 *
 * A create that put its session before the prune listed them is waited for, unless it has seen the mark, and then it does
 * not count on the packs. One that put it after that loads the marks after it, and so sees the mark.
 *
 * Directly before it publishes, a create checks for marks that came since (F7, create/recheck.c).
 *
 * Publishing is a rename of the session's own object. A prune that takes a session for dead removes that object, so
 * exactly one of the two happens.
 */
#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "backup/repo/twins.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "format/row.h"

#define FOLDER "sessions"
#define SESSION_MAX (1u << 20)

/* The heartbeat: a thread that puts the session again, until it is stopped or finds the session gone. */
struct bk_beat {
	struct bk_session *s;
	char *text; /* of the session, ready */
	size_t len;
	sl__mutex mu;
	sl__cond changed;
	bool stop, lost;
	pthread_t thread;
};

/* ---- the heartbeat ---- */

static void *beat_on(void *arg)
{
	struct bk_beat *beat = arg;
	const struct bk_session *s = beat->s;
	const struct sl_env *env = &s->b->env;
	for (;;) {
		struct sl_err err = SL_ERR_INIT;
		int64_t at = sl__deadline_ns(env, BK_HEARTBEAT_MS);
		sl__lock(&beat->mu);
		while (!beat->stop && !beat->lost && sl__mono_ns(env) < at)
			(void)sl__wait(env, &beat->changed, &beat->mu, at);
		bool ends = beat->stop || beat->lost;
		sl__unlock(&beat->mu);
		if (ends)
			return NULL;
		int rc = sl__bk_put_sealed(s->b, &(struct bk_object){FOLDER, s->id, BK_KIND_SESSION},
					   (struct bk_bytes){beat->text, beat->len}, SL_DRIVER_UPDATE, &err);
		if (rc != 0)
			sl__log(env, SL_LOG_WARN, "backup", "the session's heartbeat failed",
				SL__F_STR("session", s->id), SL__F_STR("reason", err.msg));
		sl__lock(&beat->mu);
		beat->lost |= rc == SL_ENOENT;
		sl__unlock(&beat->mu);
	}
}

static void free_beat(struct bk_beat *beat)
{
	const struct sl_env *env = &beat->s->b->env;
	sl__cond_fini(&beat->changed);
	sl__mutex_fini(&beat->mu);
	sl__free(env, beat->text);
	sl__free(env, beat);
}

/* Returns whether the session was found gone. */
static bool stop_beat(struct bk_session *s)
{
	struct bk_beat *beat = s->beat;
	if (beat == NULL)
		return false;
	sl__lock(&beat->mu);
	beat->stop = true;
	sl__broadcast(&beat->changed);
	sl__unlock(&beat->mu);
	(void)pthread_join(beat->thread, NULL);
	bool lost = beat->lost;
	free_beat(beat);
	s->beat = NULL;
	return lost;
}

/* ---- begin, publish, end ---- */

/* Put the session object; once it is ready, its heartbeat starts. */
static int announce(struct bk_session *s, bool ready, struct sl_err *err)
{
	char host[256] = "";
	struct sl__buf buf;
	if (gethostname(host, sizeof(host) - 1) != 0 || !sl__utf8_valid(host))
		host[0] = '\0';
	sl__buf_init(&buf, &s->b->env);
	sl__buf_printf(&buf, "{\"version\":%d,\"host\":", BK_VERSION);
	sl__put_json_string(&buf, host, strlen(host));
	sl__buf_printf(&buf, ",\"pid\":%ld,\"started_ms\":%lld,\"ready\":%s,\"seen\":[", (long)getpid(),
		       (long long)s->started_ms, ready ? "true" : "false");
	for (size_t i = 0; i < s->seen.n; i++)
		sl__buf_printf(&buf, "%s\"%s\"", i != 0 ? "," : "", s->seen.marks[i].id);
	sl__buf_str_append(&buf, "]}");
	size_t len = buf.len;
	char *text = sl__buf_take(&buf);
	sl__buf_fini(&buf);
	if (text == NULL)
		return sl_err_set(err, SL_ENOMEM, "announce a session: out of memory");
	int rc = sl__bk_put_sealed(s->b, &(struct bk_object){FOLDER, s->id, BK_KIND_SESSION},
				   (struct bk_bytes){text, len}, ready ? SL_DRIVER_UPDATE : SL_DRIVER_NEW, err);
	if (rc != 0 || !ready) {
		sl__free(&s->b->env, text);
		return rc;
	}

	/* The heartbeat; once it is there, it owns the text. */
	struct bk_beat *beat = sl__calloc(&s->b->env, 1, sizeof(*beat));
	if (beat == NULL) {
		sl__free(&s->b->env, text);
		return sl_err_set(err, SL_ENOMEM, "announce a session: out of memory");
	}
	*beat = (struct bk_beat){.s = s, .text = text, .len = len};
	sl__mutex_init(&beat->mu);
	sl__cond_init(&beat->changed);
	rc = sl__thread_start(&beat->thread, "backup-beat", beat_on, beat);
	if (rc != 0) {
		free_beat(beat);
		return sl__thread_error(err, rc, "heartbeat", "a session");
	}
	s->beat = beat;
	return 0;
}

static int session_lost(struct sl_err *err, const char *id)
{
	return sl_err_set(
		err, SL_EAGAIN,
		"session %s was taken for dead and removed, and a prune may have deleted blocks that it needs: "
		"nothing is published; start again",
		id);
}

int sl__bk_session_begin(struct sl_backup *b, struct bk_session **out, struct sl_err *err)
{
	struct bk_session *s = sl__calloc(&b->env, 1, sizeof(*s));
	if (s == NULL)
		return sl_err_set(err, SL_ENOMEM, "begin a session: out of memory");
	s->b = b;
	s->started_ms = sl__real_ms(&b->env);
	int rc = sl__bk_new_name(&b->env, s->id, err);
	if (rc != 0) {
		sl__free(&b->env, s);
		return rc;
	}
	rc = announce(s, false, err);
	if (rc == 0)
		rc = sl__bk_marks_load(b, &s->seen, err);
	if (rc == 0)
		rc = announce(s, true, err);
	if (rc == SL_ENOENT)
		rc = session_lost(err, s->id);
	if (rc == 0)
		*out = s;
	else
		sl__bk_session_end(s);
	return rc;
}

int sl__bk_session_publish(struct bk_session *s, const void *json, size_t len, struct sl_err *err)
{
	char from[SL_DRIVER_NAME_BYTES], to[SL_DRIVER_NAME_BYTES];
	if (stop_beat(s))
		return session_lost(err, s->id);
	int rc = sl__bk_put_sealed(s->b, &(struct bk_object){FOLDER, s->id, BK_KIND_SNAPSHOT},
				   (struct bk_bytes){json, len}, SL_DRIVER_UPDATE, err);
	if (rc == 0) {
		(void)snprintf(from, sizeof(from), FOLDER "/%s", s->id);
		(void)snprintf(to, sizeof(to), "snapshots/%s", s->id);
		rc = s->b->driver.ops->rename(s->b->driver.driver, from, to, err);
		if (rc != 0 && rc != SL_ENOENT) /* it may have failed after the change, in its sync */
			rc = sl_err_wrap(err, rc, "publish: check whether snapshot %s exists", s->id);
	}
	s->published = rc == 0;
	if (rc == 0)
		sl__bk_snapshot_put_copy(s->b, s->id, json, len);
	return rc == SL_ENOENT ? session_lost(err, s->id) : rc;
}

int sl__bk_session_why(struct bk_session *s, int rc, struct sl_err *err)
{
	char name[SL_DRIVER_NAME_BYTES];
	struct sl_driver_stat st;
	if (rc == 0 || s == NULL || s->published)
		return rc;
	(void)snprintf(name, sizeof(name), FOLDER "/%s", s->id);
	return s->b->driver.ops->stat(s->b->driver.driver, name, &st, NULL) == SL_ENOENT ? session_lost(err, s->id)
											 : rc;
}

void sl__bk_session_end(struct bk_session *s)
{
	char name[SL_DRIVER_NAME_BYTES];
	if (s == NULL)
		return;
	struct sl_backup *b = s->b;
	(void)stop_beat(s);
	(void)snprintf(name, sizeof(name), FOLDER "/%s", s->id);
	if (!s->published) /* one that stays is taken for dead in time */
		(void)b->driver.ops->remove(b->driver.driver, name, NULL);
	sl__bk_marks_fini(&b->env, &s->seen);
	sl__free(&b->env, s);
}

/* ---- those of others ---- */

int sl__bk_sessions_each(struct sl_backup *b, bk_session_fn *fn, void *ctx, struct sl_err *err)
{
	struct bk_listed *listed;
	size_t n;
	int rc = sl__bk_list_names(b, FOLDER, &listed, &n, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; rc == 0 && i < n; i++) {
		struct bk_session_info info = {.mtime_ms = listed[i].stat.mtime_ms};
		struct bk_opened o;
		int version = 0, ready = 0;
		json_t *seen = NULL, *mark;
		size_t k;
		memcpy(info.id, listed[i].id, BK_NAME_HEX);
		int got = sl__bk_get_sealed(b, &(struct bk_object){FOLDER, info.id, BK_KIND_SESSION}, SESSION_MAX, &o,
					    NULL);
		if (got == SL_ENOENT) /* it has ended meanwhile */
			continue;
		if (got != 0) { /* what cannot be read has seen nothing: a prune then waits for it */
			rc = fn(&info, ctx);
			continue;
		}
		json_t *root = json_loadb(o.text, o.len, JSON_REJECT_DUPLICATES, NULL);
		info.ready = json_unpack(root, "{s:i, s:b, s:o}", "version", &version, "ready", &ready, "seen",
					 &seen) == 0 &&
			     version == BK_VERSION && ready && json_is_array(seen);
		if (info.ready) {
			info.seen = sl__calloc(&b->env, json_array_size(seen), sizeof(*info.seen));
			info.ready = info.seen != NULL;
		}
		json_array_foreach(seen, k, mark)
		{
			info.ready = info.ready && json_is_string(mark) && sl__bk_is_name(json_string_value(mark));
			if (!info.ready)
				break;
			memcpy(info.seen[info.n_seen++], json_string_value(mark), BK_NAME_HEX);
		}
		if (!info.ready)
			info.n_seen = 0;
		json_decref(root);
		sl__free(&b->env, o.memory);
		rc = fn(&info, ctx);
		sl__free(&b->env, info.seen);
	}
	sl__free(&b->env, listed);
	return rc;
}
