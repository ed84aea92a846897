/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration of a server: defaults, then a YAML file, then the environment, then flags; the later wins. Every
 * value passes the same check, wherever it comes from, and an error names its place.
 *
 * Thread safety: none; a configuration is made by one thread and only read afterwards. Ownership: srv_config_fini frees
 * all that a config holds, also after a failure.
 */
#ifndef SLUICE_SERVER_CONFIG_H
#define SLUICE_SERVER_CONFIG_H

#include "server/config/settings.h"

#include <sluice/jobs.h>
#include <stdbool.h>
#include <stddef.h>

struct srv_list {
	char **items;
	size_t n;
};

#define SRV_C_TEXT char *
#define SRV_C_PATH char *
#define SRV_C_NUMBER int64_t
#define SRV_C_MILLIS int64_t
#define SRV_C_BYTES int64_t
#define SRV_C_FACTOR int64_t /* thousandths */
#define SRV_C_SWITCH int64_t
#define SRV_C_CHOICE int64_t
#define SRV_C_LIST struct srv_list

extern const char *const srv_choices_access_log[]; /* off, logfmt, json */
extern const char *const srv_choices_log_level[];  /* debug, info, warn, error */
extern const char *const srv_choices_damage[];     /* salvage, truncate, refuse: as enum sl_wal_on_corruption */
extern const char *const srv_choices_rows[];       /* csv, jsonl */
extern const char *const srv_choices_gaps[];       /* stop, record: as enum sl_export_gaps, less 1 */
extern const char *const srv_choices_bad_rows[];   /* stop, divert */

enum {
#define SRV_COUNT(...) +1
	SRV_N_SETTINGS = 0 SRV_SETTINGS(SRV_COUNT)
#undef SRV_COUNT
};

/* config->server_listen, config->jobs_slots … Numbers without a default are 0 until they are set, texts NULL, choices
 * and times that may be 0 are -1. */
struct srv_config {
#define SRV_MEMBER(kind, section, name, ...) SRV_C_##kind section##_##name;
	SRV_SETTINGS(SRV_MEMBER)
#undef SRV_MEMBER
	struct {
		struct srv_type *items;
		size_t n;
	} types;
	char *file; /* that was read; NULL: none */
	bool given[SRV_N_SETTINGS];
};

/* SRV_TYPE_lease … */
enum srv_type_index {
#define SRV_INDEX(kind, member, ...) SRV_TYPE_##member,
	SRV_TYPE_SETTINGS(SRV_INDEX)
#undef SRV_INDEX
		SRV_N_TYPE_SETTINGS
};

/* Where in the file; line 0: elsewhere. */
struct srv_place {
	unsigned line, column; /* from 1 */
};

/* What was set for one type. type->lease, type->retry_first … */
struct srv_type {
	char *name;
	uint32_t given; /* a bit for each enum srv_type_index */
	struct srv_place places[SRV_N_TYPE_SETTINGS];
#define SRV_MEMBER(kind, member, ...) SRV_C_##kind member;
	SRV_TYPE_SETTINGS(SRV_MEMBER)
#undef SRV_MEMBER
};

enum srv_kind { SRV_TEXT, SRV_PATH, SRV_NUMBER, SRV_MILLIS, SRV_BYTES, SRV_FACTOR, SRV_SWITCH, SRV_CHOICE, SRV_LIST };

struct srv_setting {
	enum srv_kind kind;
	const char *section, *name;
	const char *flag; /* NULL: --set only */
	const char *def;
	int64_t min, max;
	const char *const *choices;
	const char *help;
	size_t offset; /* in struct srv_config */
};
/* In the order of the rows; section NULL at the end. */
extern const struct srv_setting srv_settings[];

/* The defaults. SL_ENOMEM. */
int srv_config_init(struct srv_config *config, struct sl_err *err);
void srv_config_fini(struct srv_config *config);

/* Whether a file, the environment or a flag has set it, perhaps to its default. */
bool srv_config_given(const struct srv_config *config, const char *section, const char *name);

const struct srv_setting *srv_setting_find(const char *section, const char *name);
/* "SLUICE_SERVER_LISTEN"; returns to. */
#define SRV_ENV_BYTES 64
const char *srv_setting_env(const struct srv_setting *setting, char to[SRV_ENV_BYTES]);
/* "a whole number from 1 to 256", "one of off, logfmt, json"; returns to. */
const char *srv_setting_expects(const struct srv_setting *setting, char *to, size_t size);

/* Set one from its text; a LIST gets one more item. SL_EINVAL, with a text that says what is expected. */
int srv_config_set(struct srv_config *config, const struct srv_setting *setting, const char *text, struct sl_err *err);
/* The same in any struct that a table of settings describes; label names the value in an error. */
int srv_setting_store(void *base, const struct srv_setting *setting, const char *label, const char *text,
		      struct sl_err *err);
/* Forget the items of a list, so that a later source replaces those of an earlier one. */
void srv_config_clear(struct srv_config *config, const struct srv_setting *setting);
/* "section.name=value" or "types.TYPE.NAME=value", of --set. An unknown name is SL_EINVAL, with the nearest known one. */
int srv_config_assign(struct srv_config *config, const char *text, struct sl_err *err);
/* Everything in the environment. env: "NAME=value"…, NULL at the end. A name that begins with SLUICE_ and a section's
 * name but is not a setting is SL_ECONFIG: it is most likely mistyped. */
int srv_config_environment(struct srv_config *config, char *const *env, struct sl_err *err);
/* What no single value shows: pairs that belong together, a lease shorter than its renewal. SL_EINVAL. */
int srv_config_check(const struct srv_config *config, struct sl_err *err);

/* ---- types ---- */

/* In the order of enum srv_type_index; section NULL at the end. */
extern const struct srv_setting srv_type_settings[];
/* NULL: nothing was set for it. */
const struct srv_type *srv_type_find(const struct srv_config *config, const char *name);
/* type NULL: false. */
bool srv_type_has(const struct srv_type *type, enum srv_type_index index);
/* "sluice.yaml:3:5: types.mail.lease", "--set types.mail.lease"; returns to. */
const char *srv_type_place(const struct srv_config *config, const struct srv_type *type, enum srv_type_index index,
			   char *to, size_t size);
/* The known name that is nearest to a mistyped one, NULL when none is near. */
const char *srv_type_nearest(const char *word);
struct srv_type_value {
	const char *type, *text;
	const struct srv_setting *setting;
	struct srv_place at;
};
int srv_type_set(struct srv_config *config, const struct srv_type_value *value, struct sl_err *err);
/* "TYPE.NAME=value". */
int srv_type_assign(struct srv_config *config, const char *text, struct sl_err *err);
/* Every member but name and command: those of the type, else of `jobs`. renew and retry_cap: 0 for their defaults. */
void srv_type_resolve(const struct srv_config *config, const char *name, struct srv_type *out);
/* What no single value shows. *at: the place of the one that the error names. */
int srv_types_check(const struct srv_config *config, struct srv_place *at, struct sl_err *err);
/* Priorities of new jobs, for clients and workers. The caller frees *out. */
int srv_types_registry(const struct srv_config *config, const struct sl_env *env, sl_job_types **out,
		       struct sl_err *err);
void srv_types_fini(struct srv_config *config);

/* Called with each problem of a file: line and column from 1 (0: of the file as a whole). */
typedef void srv_problem_fn(size_t line, size_t column, const char *text, void *ctx);
/* Read a file. Every problem is reported; SL_ECONFIG when there was one, else SL_ENOENT and other errors of reading. */
int srv_config_file(struct srv_config *config, const char *path, srv_problem_fn *fn, void *ctx, struct sl_err *err);

/* The known word that is nearest to a mistyped one, NULL when none is near. words: n of them. */
const char *srv_nearest(const char *word, const char *const *words, size_t n);

/* Folders that follow from the configuration: data, wal, archive, dead letters, and the store's URL. */
struct srv_places {
	char *data, *store_url, *wal_dir, *archive_dir, *dlq_dir;
	char *shown_store; /* what commands give as --store; NULL: they need not, or the URL holds a secret */
};
int srv_places_init(struct srv_places *places, const struct srv_config *config, struct sl_err *err);
void srv_places_fini(struct srv_places *places);

#endif
