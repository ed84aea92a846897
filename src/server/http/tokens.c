/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a tokens file: a line per token, blank lines, and comments that begin with #. */
#include "base/base.h"
#include "server/http/auth.h"

#include <sodium.h>
#include <string.h>

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

static const char *const role_names[] = {"public", "read", "write", "admin"};

const char *srv_role_name(enum srv_role role)
{
	return role_names[role];
}

struct word {
	const char *text;
	size_t len;
};

static struct word next_word(const char **p, const char *end)
{
	struct word w;
	while (*p < end && (**p == ' ' || **p == '\t' || **p == '\r'))
		++*p;
	w.text = *p;
	while (*p < end && **p != ' ' && **p != '\t' && **p != '\r')
		++*p;
	w.len = (size_t)(*p - w.text);
	return w;
}

bool srv_scope_has(const char *list, const char *name, bool prefix)
{
	for (const char *p = list; *p != '\0';) {
		size_t n = strcspn(p, ",");
		bool star = n > 0 && p[n - 1] == '*';
		size_t part = n - star;
		if (strncmp(p, name, part) == 0 && (star || prefix || name[part] == '\0'))
			return true;
		p += n + (p[n] == ',');
	}
	return false;
}

/* The list after a scope's name: no empty entry, nothing but what types and streams have. */
static bool read_scope_list(struct word w, size_t skip, char out[SRV_SCOPE_BYTES])
{
	size_t n = w.len - skip;
	const char *text = w.text + skip;
	if (n == 0 || n >= SRV_SCOPE_BYTES || out[0] != '\0' || text[0] == ',' || text[n - 1] == ',')
		return false;
	for (size_t i = 0; i < n; i++)
		if (text[i] == '\0' || strchr(NAME_CHARS ":/*,", text[i]) == NULL ||
		    (i > 0 && text[i] == ',' && text[i - 1] == ',') ||
		    (text[i] == '*' && i + 1 < n && text[i + 1] != ','))
			return false;
	memcpy(out, text, n);
	out[n] = '\0';
	return true;
}

/* One scope: a role, or a kind with a list. Each may be given once. */
static bool read_scope(struct word w, struct srv_token *t)
{
	const struct {
		const char *kind;
		char *list;
	} lists[] = {{"enqueue:", t->enqueue}, {"worker:", t->worker}, {"ship:", t->ship}};
	for (size_t i = 0; i < SL_COUNT(lists); i++) {
		size_t n = strlen(lists[i].kind);
		if (w.len >= n && memcmp(w.text, lists[i].kind, n) == 0)
			return read_scope_list(w, n, lists[i].list);
	}
	for (int i = SRV_READ; i <= SRV_ADMIN && t->role == SRV_PUBLIC; i++)
		if (strlen(role_names[i]) == w.len && memcmp(role_names[i], w.text, w.len) == 0) {
			t->role = (enum srv_role)i;
			return true;
		}
	return false;
}

/* NAME SCOPE… sha256:HASH. Returns what is wrong with the line, or NULL. */
static const char *read_token_line(const char *p, const char *end, struct srv_token *t)
{
	static const char kind[] = "sha256:";
	const size_t k = sizeof(kind) - 1;
	size_t n_scopes = 0, n_hash = 0;
	memset(t, 0, sizeof(*t));
	struct word w = next_word(&p, end);
	bool good = w.len > 0 && w.len < SRV_NAME_BYTES;
	for (size_t i = 0; good && i < w.len; i++)
		good = w.text[i] != '\0' && strchr(NAME_CHARS, w.text[i]) != NULL;
	if (!good)
		return "the name must have 1 to 64 characters of A-Z a-z 0-9 . _ -";
	memcpy(t->name, w.text, w.len);

	for (; (w = next_word(&p, end)).len > 0 && (w.len < k || memcmp(w.text, kind, k) != 0); n_scopes++)
		if (!read_scope(w, t))
			return "a scope must be read, write, admin, enqueue:TYPES, worker:TYPES or ship:PREFIXES, each "
			       "once";
	if (n_scopes == 0)
		return "missing scope";

	if (w.len != k + 2 * (size_t)SRV_HASH_BYTES ||
	    sodium_hex2bin(t->hash, SRV_HASH_BYTES, w.text + k, w.len - k, NULL, &n_hash, NULL) != 0 ||
	    n_hash != SRV_HASH_BYTES)
		return "the hash must be sha256: and 64 hexadecimal digits";
	return next_word(&p, end).len == 0 ? NULL : "unexpected text after the hash";
}

int srv_tokens_parse(const char *text, size_t len, struct srv_token *out, size_t max, struct sl_err *err)
{
	size_t n = 0, line = 0;
	for (const char *p = text, *end = text + len; p < end;) {
		const char *stop = memchr(p, '\n', (size_t)(end - p)), *q = p;
		stop = stop != NULL ? stop : end;
		struct word first = next_word(&q, stop);
		const char *from = p;
		p = stop < end ? stop + 1 : end;
		line++;
		if (first.len == 0 || first.text[0] == '#')
			continue;
		if (n == max)
			return sl_err_set(err, SL_ECONFIG, "line %zu: more than %zu tokens", line, max);
		const struct srv_token *t = &out[n];
		const char *wrong = read_token_line(from, stop, &out[n]);
		for (size_t i = 0; wrong == NULL && i < n; i++) {
			/* Two tokens with one name belong to one client, whose token is being replaced. */
			if (strcmp(t->name, out[i].name) == 0 &&
			    !(t->role == out[i].role && strcmp(t->enqueue, out[i].enqueue) == 0 &&
			      strcmp(t->worker, out[i].worker) == 0 && strcmp(t->ship, out[i].ship) == 0))
				wrong = "the name was used before with other scopes";
			else if (sodium_memcmp(t->hash, out[i].hash, SRV_HASH_BYTES) == 0)
				wrong = "the hash was used before";
		}
		if (wrong != NULL)
			return sl_err_set(err, SL_ECONFIG, "line %zu: %s", line, wrong);
		n++;
	}
	return (int)n;
}
