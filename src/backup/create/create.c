/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a create, in the order that keeps the invariants (format.h, F3 to F5), and its progress:
 *
 *   session, with the marks seen ─▶ index of packs to rely on ─▶ parent ─▶ walk and read ─▶ manifest
 *     ─▶ store: packs durable, then their index ─▶ publish: the session becomes the snapshot
 */
#include "backup/create/create.h"

#include <stdio.h>
#include <unistd.h>

#include <sluice/version.h>

/* ---- problems and progress ---- */

void sl__bk_create_problem(enum sl_backup_problem problem, const char *path, const struct sl_err *err, void *ctx)
{
	struct bk_create *c = ctx;
	if (problem != SL_BACKUP_SKIPPED) /* a socket is not a loss */
		atomic_fetch_add(&c->counts.problems, 1);
	if (c->o.on_problem == NULL)
		return;
	char *whole = sl__asprintf(&c->b->env, "/%s", path);
	sl__lock(&c->problem_mu);
	c->o.on_problem(problem, whole != NULL ? whole : path, err, c->o.ctx);
	sl__unlock(&c->problem_mu);
	sl__free(&c->b->env, whole);
}

void sl__bk_create_stats(struct bk_create *c, struct bk_store_stats *out)
{
	struct bk_store_stats s = {.new_blocks = 0};
	if (c->store != NULL)
		sl__bk_store_stats(c->store, &s);
	s.new_blocks += c->before.new_blocks;
	s.new_bytes += c->before.new_bytes;
	s.physical_bytes += c->before.physical_bytes;
	*out = s;
}

void sl__bk_create_progress(struct bk_create *c)
{
	struct bk_store_stats s;
	struct bk_counts *n = &c->counts;
	sl__bk_create_stats(c, &s);
	sl__lock(&c->b->mu);
	struct sl_backup_progress *p = &c->b->progress;
	p->files = atomic_load(&n->entries);
	p->bytes = atomic_load(&n->bytes_done);
	p->files_total = atomic_load(&n->seen);
	p->bytes_total = atomic_load(&n->seen_bytes);
	if (!p->totals_known && c->parent != NULL) {
		/* About as much as last time, until it is known. */
		p->files_total = SL_MAX(p->files_total, sl__bk_parent_info(c->parent)->entries);
		p->bytes_total = SL_MAX(p->bytes_total, sl__bk_parent_info(c->parent)->bytes);
	}
	p->dedup_bytes = atomic_load(&n->known_bytes);
	p->physical_bytes = s.physical_bytes;
	p->errors = atomic_load(&n->problems);
	p->backlog_bytes = s.backlog_bytes;
	p->concurrency = s.concurrency;
	p->max_concurrency = s.max_concurrency;
	p->backpressure = s.backpressure;
	sl__unlock(&c->b->mu);
}

static void set_phase(struct bk_create *c, const char *phase, bool totals_known)
{
	sl__lock(&c->b->mu);
	c->b->progress.phase = phase;
	c->b->progress.totals_known = totals_known;
	sl__unlock(&c->b->mu);
	sl__bk_create_progress(c);
}

/* ---- options ---- */

static bool is_switch(enum sl_switch s)
{
	return s == SL_DEFAULT || s == SL_ON || s == SL_OFF;
}

static int set_create_opts(struct bk_create *c, const struct sl_backup_create_opts *opts, struct sl_err *err)
{
	struct sl_backup_create_opts *o = &c->o;
	sl__opts_copy(o, sizeof(*o), opts);
	if (!is_switch(o->one_file_system) || !is_switch(o->sqlite) || !is_switch(o->databases_first) ||
	    !is_switch(o->force))
		return sl_err_set(err, SL_EINVAL, "a switch is neither on, off nor the default");
	for (size_t i = 0; i < o->n_tags; i++)
		if (o->tags[i] == NULL || o->tags[i][0] == '\0')
			return sl_err_set(err, SL_EINVAL, "tags: tag %zu is empty", i + 1);
	if (o->host != NULL && strlen(o->host) >= sizeof(c->host))
		return sl_err_set(err, SL_EINVAL, "host: longer than 255 bytes");
	if (o->host != NULL && o->host[0] != '\0')
		(void)snprintf(c->host, sizeof(c->host), "%s", o->host);
	else if (gethostname(c->host, sizeof(c->host) - 1) != 0)
		(void)snprintf(c->host, sizeof(c->host), "localhost");
	c->started_ms = sl__real_ms(&c->b->env);
	if (o->time_ms == 0)
		o->time_ms = c->started_ms;
	int rc = sl__bk_excludes_init(&c->excludes, o->excludes, o->n_excludes, err);
	if (rc != 0)
		return rc;
	return sl__bk_roots_init(&c->roots, &c->b->env, o->paths, o->n_paths, err);
}

/* ---- everything before the first file ---- */

static int note_unusable_pack(SL_UNUSED const struct bk_id *pack, bool usable, void *ctx)
{
	*(bool *)ctx |= !usable;
	return 0;
}

static int open_all(struct bk_create *c, struct sl_err *err)
{
	struct sl_backup *b = c->b;
	int lane = b->opts.threads; /* the last one belongs to the caller's thread */
	c->root = sl__bk_tree_root();
	if (c->root < 0)
		return sl_err_set_errno(err, -c->root, "open the root folder");

	/* The session first, then the index (F5). When there are marks, a block of the parent may be in a pack that one
	 * of them names and that no index file names yet (the parent may have been published since the index was
	 * loaded). So every block is looked up. Without marks there is nothing that a prune could delete before it has
	 * asked this session. */
	int rc = sl__bk_session_begin(c->b, &c->session, err);
	if (rc == 0)
		rc = sl__bk_index_for_writing(c->b, &c->session->seen, &c->index, err);
	if (rc != 0)
		return rc;
	c->check_parent = c->session->seen.n > 0;
	rc = sl__bk_index_packs(c->index, note_unusable_pack, &c->check_parent);
	if (rc != 0)
		return rc;

	rc = sl__bk_store_new(&c->store, b, c->index, lane + 1, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_parent_open(&c->parent, c, err);
	if (rc != 0)
		return rc;
	if (c->parent != NULL)
		(void)snprintf(c->parent_id, sizeof(c->parent_id), "%s", sl__bk_parent_info(c->parent)->id);
	if (c->check_parent)
		rc = sl__bk_reader_new(&c->lists, b, c->index, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_manifest_writer_new(&c->manifest, b, c->store, lane, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_contents_new(&c->own, c, lane, err);
	if (rc != 0)
		return rc;
	return sl__bk_workers_start(c, err);
}

/* ---- walk and read ---- */

static int read_tree(struct bk_create *c, struct sl_err *err)
{
	struct bk_walk_opts opts = {.roots = &c->roots,
				    .excludes = &c->excludes,
				    .one_file_system = c->o.one_file_system == SL_ON,
				    .ctx = c};
	int rc = 0;
	if (c->o.databases_first == SL_ON && c->o.sqlite != SL_OFF) {
		set_phase(c, "databases", false);
		opts.visit = sl__bk_create_visit_databases; /* the walk of everything reports problems */
		rc = sl__bk_walk(&c->b->env, &opts, err);
	}
	set_phase(c, "read", false);
	opts.visit = sl__bk_create_visit;
	opts.problem = sl__bk_create_problem;
	if (rc == 0)
		rc = sl__bk_walk(&c->b->env, &opts, err);
	if (rc != 0)
		return rc;
	set_phase(c, "read", true);
	return sl__bk_window_shrink(c, 0, err);
}

/* ---- publish ---- */

/* "/etc" for each root, in one piece of memory after the array. */
static const char **root_paths(struct bk_create *c)
{
	size_t bytes = c->roots.n * sizeof(char *);
	for (size_t i = 0; i < c->roots.n; i++)
		bytes += strlen(c->roots.roots[i].path) + 2;
	const char **paths = sl__alloc(&c->b->env, bytes);
	if (paths == NULL)
		return NULL;
	char *at = (char *)(paths + c->roots.n);
	for (size_t i = 0; i < c->roots.n; i++) {
		size_t n = strlen(c->roots.roots[i].path) + 1;
		paths[i] = at;
		*at++ = '/';
		memcpy(at, c->roots.roots[i].path, n);
		at += n;
	}
	return paths;
}

/* The session becomes the snapshot, which has the manifest in *s. */
static int publish_create(struct bk_create *c, struct bk_snapshot *s, struct sl_err *err)
{
	const struct sl_env *env = &c->b->env;
	struct bk_store_stats stats;
	char *json = NULL;
	size_t len;
	const char **paths = root_paths(c);
	if (paths == NULL)
		return sl__no_memory(err, "publish the snapshot");
	sl__bk_create_stats(c, &stats);
	int64_t took_ms = sl__real_ms(env) - c->started_ms;
	s->info = (struct sl_backup_snapshot){.struct_size = sizeof(s->info),
					      .id = c->session->id,
					      .time_ms = c->o.time_ms,
					      .host = c->host,
					      .parent = c->parent_id,
					      .paths = paths,
					      .n_paths = c->roots.n,
					      .tags = c->o.tags,
					      .n_tags = c->o.n_tags,
					      .entries = atomic_load(&c->counts.entries),
					      .files = atomic_load(&c->counts.files),
					      .bytes = atomic_load(&c->counts.bytes),
					      .new_bytes = stats.new_bytes,
					      .physical_bytes = stats.physical_bytes,
					      .problems = atomic_load(&c->counts.problems),
					      .took_ms = took_ms > 0 ? (uint64_t)took_ms : 0,
					      .version = sl_version()};
	int rc = sl__bk_snapshot_json(env, s, &json, &len, err);
	if (rc == 0)
		rc = sl__bk_check_stop(c->b, err);
	if (rc == 0)
		rc = sl__bk_session_publish(c->session, json, len, err);
	sl__free(env, json);
	sl__free(env, paths);
	return rc;
}

static int finish_create(struct bk_create *c, struct sl_err *err)
{
	struct bk_snapshot s = {.manifest = NULL};
	set_phase(c, "finish", true);
	int rc = sl__bk_manifest_finish(c->manifest, &s.manifest, &s.n_manifest, err);
	if (rc == 0) /* everything durable, and still there */
		rc = sl__bk_store_finish(c->store, err);
	if (rc == 0)
		rc = sl__bk_create_recheck(c, &s, err);
	if (rc == 0)
		rc = publish_create(c, &s, err);
	sl__bk_create_progress(c);
	sl__free(&c->b->env, s.manifest);
	return rc;
}

/* ---- the call ---- */

static void set_created(struct bk_create *c, struct sl_backup_created *out)
{
	struct bk_store_stats s;
	sl__bk_create_stats(c, &s);
	struct bk_counts *n = &c->counts;
	struct sl_backup_created r = {.entries = atomic_load(&n->entries),
				      .files = atomic_load(&n->files),
				      .files_new = atomic_load(&n->files_new),
				      .files_changed = atomic_load(&n->files_changed),
				      .files_unchanged = atomic_load(&n->files_unchanged),
				      .bytes = atomic_load(&n->bytes),
				      .read_bytes = atomic_load(&n->read_bytes),
				      .new_bytes = s.new_bytes,
				      .physical_bytes = s.physical_bytes,
				      .new_blocks = s.new_blocks,
				      .known_blocks = atomic_load(&n->known_blocks),
				      .problems = atomic_load(&n->problems)};
	memcpy(r.id, c->session->id, sizeof(r.id));
	sl__result_copy(out, &r, sizeof(r));
}

void sl__bk_create_release(struct bk_create *c)
{
	sl__bk_contents_free(c->own);
	sl__bk_manifest_writer_free(c->manifest);
	sl__bk_parent_close(c->parent);
	sl__bk_reader_free(c->lists);
	sl__bk_store_free(c->store);
	sl__bk_index_free(c->index);
	c->own = NULL;
	c->manifest = NULL;
	c->parent = NULL;
	c->lists = NULL;
	c->store = NULL;
	c->index = NULL;
}

int sl_backup_create(sl_backup *b, const struct sl_backup_create_opts *opts, struct sl_backup_created *out,
		     struct sl_err *err)
{
	int rc = sl__bk_begin(b, "scan", err);
	if (rc != 0)
		return rc;
	struct bk_create *c = sl__calloc(&b->env, 1, sizeof(*c));
	if (c == NULL)
		return sl__no_memory(err, "create a snapshot");
	c->b = b;
	c->root = -1;
	sl__mutex_init(&c->mu);
	sl__mutex_init(&c->problem_mu);
	sl__cond_init(&c->work);
	sl__cond_init(&c->done);

	rc = set_create_opts(c, opts, err);
	if (rc == 0)
		rc = open_all(c, err);
	if (rc == 0)
		rc = read_tree(c, err);
	if (rc != 0) {
		/* The workers' results are not needed: they end with the file that they read now. */
		sl__lock(&c->mu);
		if (c->failed == 0)
			c->failed = SL_ECANCELLED;
		sl__broadcast(&c->work);
		sl__unlock(&c->mu);
	}
	sl__bk_workers_stop(c);
	if (rc == 0)
		rc = finish_create(c, err);
	if (rc == 0 && out != NULL)
		set_created(c, out);
	rc = sl__bk_session_why(c->session, rc, err);

	sl__bk_window_fini(c);
	sl__bk_create_release(c);
	sl__bk_session_end(c->session);
	sl__bk_roots_fini(&b->env, &c->roots);
	sl__bk_tree_close(&c->root);
	sl__mutex_fini(&c->mu);
	sl__mutex_fini(&c->problem_mu);
	sl__cond_fini(&c->work);
	sl__cond_fini(&c->done);
	sl__free(&b->env, c);
	return rc;
}
