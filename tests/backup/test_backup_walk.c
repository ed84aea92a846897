/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over trees: their order, how many folders are open, what lies on other devices, folders that move away. */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "backup/create/walk.h"
#include "backup/create_kit.h"
#include "backup/manifest/manifest.h"

struct seen {
	struct ck *k;
	char last[70000];
	size_t names, folders, most_open, problems;
	char listed[4096]; /* names below the tree, each ended by a newline */
	char problem[300];
	int replace_by_link;
	void (*on_visit)(struct seen *s, const struct bk_visit *v);
};

static size_t open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;
	assert_non_null(d);
	while (readdir(d) != NULL)
		n++;
	(void)closedir(d);
	return n;
}

static int visit(struct bk_visit *v, struct sl_err *err, void *ctx)
{
	struct seen *s = ctx;
	(void)err;
	assert_int_equal(strlen(v->path), v->path_len);
	if (s->last[0] != '\0')
		assert_true(sl__bk_path_compare(s->last, strlen(s->last), v->path, v->path_len) < 0);
	(void)snprintf(s->last, sizeof(s->last), "%s", v->path);
	s->names++;
	s->folders += S_ISDIR(v->st.st_mode);
	if (s->names % 50 == 0)
		s->most_open = SL_MAX(s->most_open, open_descriptors());
	size_t below = strlen(s->k->tree);
	if (v->path_len > below && strlen(s->listed) + v->path_len < sizeof(s->listed))
		(void)snprintf(s->listed + strlen(s->listed), sizeof(s->listed) - strlen(s->listed), "%s\n",
			       v->path + below);
	if (s->on_visit != NULL)
		s->on_visit(s, v);
	return 0;
}

static void problem(enum sl_backup_problem p, const char *path, const struct sl_err *err, void *ctx)
{
	struct seen *s = ctx;
	assert_true(err->msg[0] != '\0');
	s->problems++;
	(void)snprintf(s->problem, sizeof(s->problem), "%s %.200s", sl_backup_problem_name(p),
		       path + SL_MIN(strlen(path), strlen(s->k->tree)));
}

static void walk(struct seen *s, const char *path, const char *const *patterns, size_t n, bool one_file_system)
{
	struct sl_env env;
	struct bk_roots roots;
	struct bk_excludes excludes;
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	assert_int_equal(sl__bk_roots_init(&roots, &env, &path, 1, NULL), 0);
	assert_int_equal(sl__bk_excludes_init(&excludes, patterns, n, NULL), 0);
	const struct bk_walk_opts o = {.roots = &roots,
				       .excludes = &excludes,
				       .one_file_system = one_file_system,
				       .visit = visit,
				       .problem = problem,
				       .ctx = s};
	size_t before = open_descriptors();
	int rc = sl__bk_walk(&env, &o, &err);
	if (rc != 0)
		fail_msg("%s", err.msg);
	assert_int_equal(open_descriptors(), before);
	sl__bk_roots_fini(&env, &roots);
}

static struct seen *new_seen(struct ck *k)
{
	struct seen *s = calloc(1, sizeof(*s));
	assert_non_null(s);
	s->k = k;
	return s;
}

static void names_come_in_the_order_of_manifests(void **state)
{
	(void)state;
	struct ck k;
	ck_begin(&k, NULL);
	struct seen *s = new_seen(&k);
	uint64_t x = 99;
	size_t made = 0;
	for (int d = 0; d < 30; d++) {
		char folder[40], name[80];
		static const char around[] = "\x01-./0Aaz~\x80\xff";
		/* Names next to "a" that sort before and after a slash. */
		(void)snprintf(folder, sizeof(folder), "a%c%d", around[d % 11] == '/' ? '_' : around[d % 11], d);
		ck_mkdir(&k, folder);
		made++;
		for (int f = 0; f < 20; f++) {
			x = x * 6364136223846793005u + 1442695040888963407u;
			(void)snprintf(name, sizeof(name), "%s/%c%d", folder,
				       (int)(x >> 40) % 200 + 48 == '/' ? 'x' : (char)((x >> 40) % 200 + 48), f);
			ck_text(&k, name, "");
			made++;
		}
	}
	walk(s, k.tree, NULL, 0, false);
	size_t above = 1; /* the tree itself, and the folders above it */
	for (const char *p = k.tree + 1; *p != '\0'; p++)
		above += *p == '/';
	assert_int_equal(s->names, made + above);
	assert_int_equal(s->problems, 0);
	free(s);
	ck_end(&k);
}

static void make_deep(struct ck *k, int levels)
{
	int dir = open(k->tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(dir >= 0);
	for (int i = 0; i < levels; i++) {
		assert_int_equal(mkdirat(dir, "d", 0755), 0);
		int fd = openat(dir, "z", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		assert_true(fd >= 0);
		close(fd);
		int next = openat(dir, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(dir);
		dir = next;
	}
	close(dir);
}

static void few_folders_are_open_however_deep_the_tree_is(void **state)
{
	(void)state;
	struct ck k;
	ck_begin(&k, NULL);
	struct seen *s = new_seen(&k);
	make_deep(&k, 300);
	size_t before = open_descriptors();
	walk(s, k.tree, NULL, 0, false);
	assert_int_equal(s->problems, 0);
	assert_true(s->names > 600);
	assert_true(s->most_open > before && s->most_open <= before + BK_WALK_FDS + 4);
	print_message("# %zu names, at most %zu descriptors more\n", s->names, s->most_open - before);
	free(s);
	ck_end(&k);
}

static void move_the_first_away(struct seen *s, const struct bk_visit *v)
{
	char from[1024], to[1024];
	size_t levels = 0;
	for (size_t i = strlen(s->k->tree) - 1; i < v->path_len; i++)
		levels += v->path[i] == '/';
	if (levels != 100)
		return;
	s->on_visit = NULL;
	assert_int_equal(rename(ck_path(s->k, "d/d", from), ck_path(s->k, "moved", to)), 0);
	if (s->replace_by_link) {
		assert_int_equal(symlink("/", from), 0);
		return;
	}
	assert_int_equal(mkdir(from, 0755), 0);
	ck_text(s->k, "d/d/z", "in another folder");
}

/* The walk has come deep, and the folder to which it has to come back is another one. */
static void a_folder_that_was_moved_is_reported_and_nothing_else_is_walked_in_its_place(void **state)
{
	(void)state;
	for (int by_link = 0; by_link <= 1; by_link++) {
		struct ck k;
		ck_begin(&k, NULL);
		struct seen *s = new_seen(&k);
		make_deep(&k, 120);
		s->on_visit = move_the_first_away;
		s->replace_by_link = by_link;
		walk(s, k.tree, NULL, 0, false);
		/* All the way back to it the folders are not where they were. */
		assert_string_equal(s->problem, "vanished d/d");
		/* It ends with the names of the folder that is still there. */
		assert_string_equal(s->last + strlen(k.tree), "z");
		assert_null(strstr(s->listed, "\nd/d/z\n"));
		free(s);
		ck_end(&k);
	}
}

static void another_file_system_is_entered_only_when_it_may_be(void **state)
{
	(void)state;
	struct ck k;
	char at[1024];
	if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		skip();
	ck_begin(&k, NULL);
	ck_mkdir(&k, "m");
	ck_text(&k, "z", "");
	if (mount("none", ck_path(&k, "m", at), "tmpfs", 0, "size=64k") != 0) {
		ck_end(&k);
		skip();
	}
	ck_text(&k, "m/in", "");
	struct seen *s = new_seen(&k);
	walk(s, k.tree, NULL, 0, false);
	assert_string_equal(s->listed, "m\nm/in\nz\n");
	free(s);
	s = new_seen(&k);
	walk(s, k.tree, NULL, 0, true);
	assert_string_equal(s->listed, "m\nz\n");
	free(s);
	/* A root on it is walked. */
	s = new_seen(&k);
	walk(s, at, NULL, 0, true);
	assert_string_equal(s->listed, "m\nm/in\n");
	free(s);
	assert_int_equal(umount(at), 0);
	ck_end(&k);
}

static void the_root_folder_has_no_entry(void **state)
{
	(void)state;
	struct ck k;
	static const char *const all[] = {"/*"}, *const but_etc[] = {"/[!e]*", "/e[!t]*", "/et[!c]*", "/etc?*",
								     "/etc/**"};
	ck_begin(&k, NULL);
	struct seen *s = new_seen(&k);
	walk(s, "/", all, 1, false);
	assert_int_equal(s->names, 0);
	walk(s, "/", but_etc, 4, false);
	walk(s, "/..", all, 1, false);
	assert_true(s->names > 0);
	free(s);
	s = new_seen(&k);
	walk(s, "/", but_etc, 5, false);
	assert_int_equal(s->names, 1);
	assert_string_equal(s->last, "etc");
	free(s);
	ck_end(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_come_in_the_order_of_manifests),
		cmocka_unit_test(few_folders_are_open_however_deep_the_tree_is),
		cmocka_unit_test(a_folder_that_was_moved_is_reported_and_nothing_else_is_walked_in_its_place),
		cmocka_unit_test(another_file_system_is_entered_only_when_it_may_be),
		cmocka_unit_test(the_root_folder_has_no_entry),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
