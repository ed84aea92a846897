/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/care_kit.h"

static struct sl_backup_opts care_opts(void)
{
	return (struct sl_backup_opts){SL_BACKUP_OPTS_INIT, .passphrase = CARE_PASSPHRASE,
				       .passphrase_len = strlen(CARE_PASSPHRASE), .threads = 2,
				       .max_retry_attempts = 1};
}

int care_try_open(sl_backup **out, struct shelf *s, struct sl_err *err)
{
	struct sl_backup_opts opts = care_opts();
	const sl_driver driver = shelf_driver(s);
	if (sl_backup_is_encrypted(&driver, NULL, NULL) == 0)
		opts.passphrase = NULL, opts.passphrase_len = 0;
	return sl_backup_open(out, &driver, &opts, err);
}

sl_backup *care_open(struct shelf *s)
{
	sl_backup *b = NULL;
	struct sl_err err = SL_ERR_INIT;
	if (care_try_open(&b, s, &err) != 0)
		fail_msg("open: %s", err.msg);
	return b;
}

sl_backup *care_new(struct shelf *s, bool encrypted)
{
	struct sl_backup_opts opts = care_opts();
	struct sl_err err = SL_ERR_INIT;
	const sl_driver driver = shelf_driver(s);
	opts.encrypt = encrypted ? SL_ON : SL_OFF;
	if (!encrypted)
		opts.passphrase = NULL, opts.passphrase_len = 0;
	if (sl_backup_init(&driver, &opts, &err) != 0)
		fail_msg("init: %s", err.msg);
	return care_open(s);
}

/* ---- contents ---- */

static uint64_t next(uint64_t *state)
{
	*state += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t x = *state;
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

uint8_t *care_bytes(const struct care_file *file)
{
	uint8_t *bytes = malloc(file->len + 8);
	uint64_t state = file->seed;
	assert_non_null(bytes);
	for (size_t i = 0; i < file->len; i += 8) {
		uint64_t x = next(&state) & UINT64_C(0x0f0f0f0f0f0f0f0f); /* compresses to a half */
		memcpy(bytes + i, &x, 8);
	}
	return bytes;
}

/* ---- making a snapshot ---- */

struct making {
	sl_backup *b;
	struct bk_session *session;
	struct bk_index *index;
	struct bk_store *store;
	struct bk_manifest_writer *writer;
	struct bk_hasher *hasher;
	struct bk_snapshot s;
};

static int add_contents(struct making *m, const struct care_file *file, struct bk_ref *ref, struct sl_err *err)
{
	uint8_t *bytes = care_bytes(file);
	int rc = sl__bk_hash(m->hasher, bytes, file->len, &ref->id, err);
	ref->len = (uint32_t)file->len;
	if (rc == 0)
		rc = sl__bk_store_block(m->store, 0, &(struct bk_block){&ref->id, bytes, file->len}, NULL, err);
	free(bytes);
	return rc;
}

static int add_file(struct making *m, const struct care_file *file, struct sl_err *err)
{
	struct bk_ref ref = {.len = 0};
	struct bk_entry e = {.type = SL_BACKUP_DIR, .path = file->path, .path_len = strlen(file->path), .mode = 0755};
	e.nlink = 2;
	int rc = 0;
	if (file->link != NULL) {
		e.type = SL_BACKUP_HARDLINK;
		e.target = file->link;
		e.target_len = strlen(file->link);
	} else if (file->seed != 0) {
		e.type = SL_BACKUP_FILE;
		e.size = file->len;
		e.refs = &ref;
		e.n_refs = file->len > 0;
		rc = file->len > 0 ? add_contents(m, file, &ref, err) : 0;
		m->s.info.files++;
		m->s.info.bytes += file->len;
	}
	m->s.info.entries++;
	return rc == 0 ? sl__bk_manifest_add(m->writer, &e, err) : rc;
}

static int begin(struct making *m, struct sl_err *err)
{
	int rc = sl__bk_session_begin(m->b, &m->session, err);
	if (rc == 0)
		rc = sl__bk_index_for_writing(m->b, &m->session->seen, &m->index, err);
	if (rc == 0)
		rc = sl__bk_store_new(&m->store, m->b, m->index, 1, err);
	if (rc == 0)
		rc = sl__bk_manifest_writer_new(&m->writer, m->b, m->store, 0, err);
	if (rc == 0)
		rc = sl__bk_hasher_new(&m->hasher, &m->b->env, &m->b->keys, err);
	return rc;
}

static int publish(struct making *m, struct sl_err *err)
{
	char *json = NULL;
	size_t len = 0;
	int rc = sl__bk_manifest_finish(m->writer, &m->s.manifest, &m->s.n_manifest, err);
	if (rc == 0)
		rc = sl__bk_store_finish(m->store, err);
	if (rc == 0)
		rc = sl__bk_snapshot_json(&m->b->env, &m->s, &json, &len, err);
	if (rc == 0)
		rc = sl__bk_session_publish(m->session, json, len, err);
	sl__free(&m->b->env, json);
	return rc;
}

int care_make(sl_backup *b, const struct care_snapshot *snapshot, char id[SL_BACKUP_ID_BYTES], struct sl_err *err)
{
	struct making m = {.b = b};
	const char *root = snapshot->root != NULL ? snapshot->root : "/data";
	m.s.info = (struct sl_backup_snapshot){.time_ms = snapshot->time_ms,
					       .host = snapshot->host != NULL ? snapshot->host : "here",
					       .parent = "",
					       .paths = &root,
					       .n_paths = 1,
					       .tags = &snapshot->tag,
					       .n_tags = snapshot->tag != NULL,
					       .version = "test"};
	int rc = begin(&m, err);
	for (size_t i = 0; i < snapshot->n && rc == 0; i++)
		rc = add_file(&m, &snapshot->files[i], err);
	if (rc == 0)
		rc = publish(&m, err);
	if (rc == 0 && id != NULL)
		memcpy(id, m.session->id, SL_BACKUP_ID_BYTES);
	sl__free(&b->env, m.s.manifest);
	sl__bk_hasher_free(m.hasher);
	sl__bk_manifest_writer_free(m.writer);
	sl__bk_store_free(m.store);
	sl__bk_index_free(m.index);
	sl__bk_session_end(m.session);
	return rc;
}

/* ---- looking ---- */

struct comparing {
	const struct care_file *files;
	size_t n;
	int entries;
	bool unknown;
	const uint8_t *bytes; /* of the file at hand */
	size_t len, at;
	bool wrong;
};

static const struct care_file *file_of(const struct comparing *c, const char *path)
{
	for (size_t i = 0; i < c->n; i++)
		if (strcmp(c->files[i].path, path) == 0)
			return &c->files[i];
	return NULL;
}

static int count_entry(const struct sl_backup_entry *e, void *ctx)
{
	struct comparing *c = ctx;
	c->entries++;
	c->unknown = c->unknown || file_of(c, e->path) == NULL;
	return 0;
}

static int compare_piece(const void *bytes, size_t len, void *ctx)
{
	struct comparing *c = ctx;
	c->wrong = c->wrong || len > c->len - c->at || memcmp(c->bytes + c->at, bytes, len) != 0;
	c->at += c->wrong ? 0 : len;
	return 0;
}

/* 1: it is there and right; 0: it is not there; -1: it is wrong. */
static int look_at(sl_backup *b, const char *id, const struct care_file *file, struct comparing *c)
{
	uint8_t *bytes = care_bytes(file);
	c->bytes = bytes;
	c->len = file->len;
	c->at = 0;
	c->wrong = false;
	struct sl_err err = SL_ERR_INIT;
	int rc = sl_backup_cat(b, id, file->path, compare_piece, c, &err);
	free(bytes);
	if (rc == SL_ENOENT)
		return 0;
	if (rc != 0 || c->wrong || c->at != c->len) {
		print_message("# %s of %.8s: %s\n", file->path, id, rc != 0 ? err.msg : "other bytes");
		return -1;
	}
	return 1;
}

int care_count_right(sl_backup *b, const char *id, const struct care_file *files, size_t n)
{
	struct comparing c = {.files = files, .n = n};
	struct sl_err err = SL_ERR_INIT;
	int right = 0;
	int rc = sl_backup_ls(b, id, NULL, count_entry, &c, &err);
	if (rc != 0 || c.unknown) {
		print_message("# %.8s: %s\n", id, rc != 0 ? err.msg : "an entry that was never made");
		return -1;
	}
	for (size_t i = 0; i < n; i++) {
		int one = files[i].seed != 0 && files[i].link == NULL ? look_at(b, id, &files[i], &c) : 0;
		if (one < 0)
			return -1;
		right += one;
	}
	return right;
}

void care_assert_whole(sl_backup *b, const char *id, const struct care_file *files, size_t n)
{
	int contents = 0;
	for (size_t i = 0; i < n; i++)
		contents += files[i].seed != 0 && files[i].link == NULL;
	assert_int_equal(care_count_right(b, id, files, n), contents);
}

int care_check(sl_backup *b, sl_backup_finding_fn *fn, void *ctx, struct sl_backup_checked *out)
{
	const struct sl_backup_check_opts opts = {SL_BACKUP_CHECK_OPTS_INIT, .read_data = SL_ON, .on_finding = fn,
						  .ctx = ctx};
	struct sl_err err = SL_ERR_INIT;
	int rc = sl_backup_check(b, &opts, out, &err);
	if (rc != 0 && rc != SL_ECORRUPT)
		fail_msg("check: %s", err.msg);
	return rc;
}

static int print_finding(const struct sl_backup_finding *f, void *ctx)
{
	int *single = ctx;
	*single += f->fault == SL_BACKUP_FAULT_ONE_COPY;
	if (f->harmless && f->fault != SL_BACKUP_FAULT_ONE_COPY)
		return 0;
	print_message("# %s: %s %s %s: %s\n", sl_backup_fault_name(f->fault), f->object,
		      f->snapshot != NULL ? f->snapshot : "", f->path != NULL ? f->path : "", f->reason.msg);
	return 0;
}

void care_assert_right(sl_backup *b)
{
	int single = 0;
	assert_int_equal(care_check(b, print_finding, &single, NULL), 0);
	assert_int_equal(single, 0);
}

struct sl_backup_pruned care_prune(sl_backup *b)
{
	struct sl_backup_pruned out = {.struct_size = sizeof(out)};
	struct sl_err err = SL_ERR_INIT;
	if (sl_backup_prune(b, NULL, &out, &err) != 0)
		fail_msg("prune: %s", err.msg);
	return out;
}

void care_forget(sl_backup *b, const char *id)
{
	const struct sl_backup_forget_opts opts = {SL_BACKUP_FORGET_OPTS_INIT, .snapshots = &id, .n_snapshots = 1};
	struct sl_err err = SL_ERR_INIT;
	uint64_t removed = 0;
	if (sl_backup_forget(b, &opts, &removed, &err) != 0 || removed != 1)
		fail_msg("forget %s: %s", id, err.msg);
}

size_t care_snapshots(sl_backup *b)
{
	char(*ids)[BK_NAME_HEX] = NULL;
	size_t n = 0;
	assert_int_equal(sl__bk_snapshot_ids(b, &ids, &n, NULL), 0);
	sl__free(&b->env, ids);
	return n;
}
