/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a create, in the order that keeps the promises (format.h, F3 to F5):
 *
 *   session, with the marks seen ─▶ index of packs that count ─▶ parent ─▶ walk and read ─▶ manifest
 *     ─▶ store: packs durable, then their index ─▶ publish: the session becomes the snapshot
 */
#include "backup/create/create.h"

#include <stdio.h>
#include <unistd.h>

#include "backup/create/contents.h"
#include <sluice/version.h>

static bool is_switch(enum sl_switch s)
{
	return s == SL_DEFAULT || s == SL_ON || s == SL_OFF;
}

static int check_options(const struct sl_backup_create_opts *o, struct sl_err *err)
{
	if (!is_switch(o->one_file_system) || !is_switch(o->sqlite) || !is_switch(o->databases_first) ||
	    !is_switch(o->force))
		return sl_err_set(err, SL_EINVAL, "a switch is neither on, off nor the default");
	for (size_t i = 0; i < o->tags_n; i++)
		if (o->tags[i] == NULL || o->tags[i][0] == '\0')
			return sl_err_set(err, SL_EINVAL, "tags: tag %zu is empty", i + 1);
	if (o->host != NULL && strlen(o->host) >= sizeof((struct bk_create *)0)->host)
		return sl_err_set(err, SL_EINVAL, "host: longer than 255 bytes");
	return 0;
}

static int set_options(struct bk_create *c, const struct sl_backup_create_opts *opts, struct sl_err *err)
{
	const struct sl_env *env = &c->b->env;
	sl__opts_copy(&c->o, sizeof(c->o), opts);
	int rc = check_options(&c->o, err);
	if (rc == 0)
		rc = sl__bk_excludes_init(&c->excludes, c->o.excludes, c->o.excludes_n, err);
	if (rc == 0)
		rc = sl__bk_roots_init(&c->roots, env, c->o.paths, c->o.paths_n, err);
	if (c->o.host != NULL && c->o.host[0] != '\0')
		(void)snprintf(c->host, sizeof(c->host), "%s", c->o.host);
	else if (gethostname(c->host, sizeof(c->host) - 1) != 0)
		(void)snprintf(c->host, sizeof(c->host), "localhost");
	int64_t now_ms = sl__real_ms(env);
	c->started_ms = now_ms;
	if (c->o.time_ms == 0)
		c->o.time_ms = now_ms;
	return rc;
}

static int note_pack(SL_UNUSED const struct bk_id *pack, bool usable, void *ctx)
{
	*(bool *)ctx |= !usable;
	return 0;
}

/*
 * The session first, then the index (F5). When there are marks, a block of the parent may be in a pack that one of them
 * names and that no index file names yet (the parent may have been published since the index was loaded), so that every
 * block is looked up; without marks there is nothing that a prune could delete before it has asked this session.
 */
static int begin_session(struct bk_create *c, struct sl_err *err)
{
	int rc = sl__bk_session_begin(c->b, &c->session, err);
	if (rc == 0)
		rc = sl__bk_index_for_writing(c->b, &c->session->seen, &c->index, err);
	c->check_parent = rc == 0 && c->session->seen.n > 0;
	return rc;
}

/* Everything up to the first file. */
static int open_all(struct bk_create *c, struct sl_err *err)
{
	struct sl_backup *b = c->b;
	int lane = b->opts.threads; /* the last one is the caller's thread's */
	c->root = sl__bk_tree_root();
	if (c->root < 0)
		return sl_err_set_errno(err, -c->root, "open the root folder");
	int rc = begin_session(c, err);
	if (rc == 0)
		rc = sl__bk_index_packs(c->index, note_pack, &c->check_parent);
	if (rc == 0)
		rc = sl__bk_store_new(&c->store, b, c->index, lane + 1, err);
	if (rc == 0)
		rc = sl__bk_parent_open(&c->parent, b, c->index, c->o.parent, c->host, &c->roots, err);
	if (rc == 0 && c->parent != NULL)
		(void)snprintf(c->parent_id, sizeof(c->parent_id), "%s", sl__bk_parent_info(c->parent)->id);
	if (rc == 0 && c->check_parent)
		rc = sl__bk_reader_new(&c->lists, b, c->index, err);
	if (rc == 0)
		rc = sl__bk_manifest_writer_new(&c->manifest, b, c->store, lane, err);
	if (rc == 0)
		rc = sl__bk_contents_new(&c->own, c, lane, err);
	return rc == 0 ? sl__bk_workers_start(c, err) : rc;
}

static void set_phase(struct bk_create *c, const char *phase, bool totals_known)
{
	sl__lock(&c->b->mu);
	c->b->progress.phase = phase;
	c->b->progress.totals_known = totals_known;
	sl__unlock(&c->b->mu);
	sl__bk_create_progress(c);
}

/* What the walk for databases meets, the walk of everything tells. */
static void say_nothing(SL_UNUSED enum sl_backup_problem problem, SL_UNUSED const char *path,
			SL_UNUSED const struct sl_err *err, SL_UNUSED void *ctx)
{
}

static int walk_tree(struct bk_create *c, bk_visit_fn *visit, bk_walk_problem_fn *problem, struct sl_err *err)
{
	const struct bk_walk_opts opts = {.roots = &c->roots,
					  .excludes = &c->excludes,
					  .one_file_system = c->o.one_file_system == SL_ON,
					  .visit = visit,
					  .problem = problem,
					  .ctx = c};
	return sl__bk_walk(&c->b->env, &opts, err);
}

static int read_tree(struct bk_create *c, struct sl_err *err)
{
	int rc = 0;
	if (c->o.databases_first == SL_ON && c->o.sqlite != SL_OFF) {
		set_phase(c, "databases", false);
		rc = walk_tree(c, sl__bk_create_visit_databases, say_nothing, err);
	}
	set_phase(c, "read", false);
	if (rc == 0)
		rc = walk_tree(c, sl__bk_create_visit, sl__bk_create_walk_problem, err);
	if (rc == 0)
		set_phase(c, "read", true);
	if (rc == 0)
		rc = sl__bk_window_drain(c, err);
	return rc;
}

/* Nothing of an error's work is wanted any more: the workers are to end with the file that they are at. */
static void call_off(struct bk_create *c)
{
	sl__lock(&c->mu);
	if (c->failed == 0)
		c->failed = SL_ECANCELLED;
	sl__broadcast(&c->work);
	sl__unlock(&c->mu);
}

/* ---- the end ---- */

static void fill_info(struct bk_create *c, struct sl_backup_snapshot *i, const char **paths)
{
	struct bk_store_stats s;
	sl__bk_create_stats(c, &s);
	*i = (struct sl_backup_snapshot){.struct_size = sizeof(*i),
					 .id = c->session->id,
					 .time_ms = c->o.time_ms,
					 .host = c->host,
					 .parent = c->parent_id,
					 .paths = paths,
					 .paths_n = c->roots.n,
					 .tags = c->o.tags,
					 .tags_n = c->o.tags_n,
					 .entries = atomic_load(&c->counts.entries),
					 .files = atomic_load(&c->counts.files),
					 .bytes = atomic_load(&c->counts.bytes),
					 .new_bytes = s.new_bytes,
					 .physical_bytes = s.physical_bytes,
					 .problems = atomic_load(&c->counts.problems),
					 .version = sl_version()};
	int64_t took = sl__real_ms(&c->b->env) - c->started_ms;
	i->took_ms = took > 0 ? (uint64_t)took : 0;
}

/* "/etc" for each root, in one block of memory behind the array. */
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

static int publish(struct bk_create *c, struct bk_ref *refs, size_t refs_n, struct sl_err *err)
{
	struct bk_snapshot s = {.manifest = refs, .manifest_n = refs_n};
	const char **paths = root_paths(c);
	char *json = NULL;
	size_t len;
	if (paths == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for the snapshot");
	fill_info(c, &s.info, paths);
	int rc = sl__bk_snapshot_json(&c->b->env, &s, &json, &len, err);
	if (rc == 0)
		rc = sl__bk_check_stop(c->b, err);
	if (rc == 0)
		rc = sl__bk_session_publish(c->session, json, len, err);
	sl__free(&c->b->env, json);
	sl__free(&c->b->env, paths);
	return rc;
}

static int finish(struct bk_create *c, struct sl_err *err)
{
	struct bk_ref *refs = NULL;
	size_t n = 0;
	set_phase(c, "finish", true);
	int rc = sl__bk_manifest_finish(c->manifest, &refs, &n, err);
	if (rc == 0)
		rc = sl__bk_store_finish(c->store, err);
	if (rc == 0)
		rc = sl__bk_create_recheck(c, refs, n, err);
	if (rc == 0)
		rc = publish(c, refs, n, err);
	sl__bk_create_progress(c);
	sl__free(&c->b->env, refs);
	return rc;
}

static void tell(struct bk_create *c, struct sl_backup_created *out)
{
	struct bk_store_stats s;
	sl__bk_create_stats(c, &s);
	struct bk_counts *n = &c->counts;
	struct sl_backup_created r = {.struct_size = out->struct_size,
				      .entries = atomic_load(&n->entries),
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
	memcpy(out, &r, SL_MIN(out->struct_size, sizeof(r)));
}

static void close_all(struct bk_create *c)
{
	sl__bk_window_fini(c);
	sl__bk_links_fini(c);
	sl__bk_contents_free(c->own);
	sl__bk_manifest_writer_free(c->manifest);
	sl__bk_parent_close(c->parent);
	sl__bk_reader_free(c->lists);
	sl__bk_store_free(c->store);
	sl__bk_index_free(c->index);
	sl__bk_session_end(c->session);
	sl__bk_roots_fini(&c->b->env, &c->roots);
	sl__bk_tree_close(&c->root);
	sl__mutex_fini(&c->mu);
	sl__mutex_fini(&c->problem_mu);
	sl__cond_fini(&c->work);
	sl__cond_fini(&c->done);
	sl__free(&c->b->env, c);
}

int sl_backup_create(sl_backup *b, const struct sl_backup_create_opts *opts, struct sl_backup_created *out,
		     struct sl_err *err)
{
	int rc = sl__bk_begin(b, "scan", err);
	if (rc != 0)
		return rc;
	struct bk_create *c = sl__calloc(&b->env, 1, sizeof(*c));
	if (c == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a create");
	c->b = b;
	c->root = -1;
	sl__mutex_init(&c->mu);
	sl__mutex_init(&c->problem_mu);
	sl__cond_init(&c->work);
	sl__cond_init(&c->done);
	rc = set_options(c, opts, err);
	if (rc == 0)
		rc = open_all(c, err);
	if (rc == 0)
		rc = read_tree(c, err);
	if (rc != 0)
		call_off(c);
	sl__bk_workers_stop(c);
	if (rc == 0)
		rc = finish(c, err);
	if (rc == 0 && out != NULL)
		tell(c, out);
	rc = sl__bk_session_why(c->session, rc, err);
	close_all(c);
	return rc;
}
