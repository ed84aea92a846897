/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a tokens file: a line per token, blank lines, and comments that begin with #. */
#include "server/http/auth.h"

#include <sodium.h>
#include <string.h>

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

static bool take_name(struct word w, char out[SRV_NAME_BYTES])
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	if (w.len == 0 || w.len >= SRV_NAME_BYTES)
		return false;
	for (size_t i = 0; i < w.len; i++)
		if (w.text[i] == '\0' || strchr(allowed, w.text[i]) == NULL)
			return false;
	memcpy(out, w.text, w.len);
	out[w.len] = '\0';
	return true;
}

static bool take_role(struct word w, enum srv_role *out)
{
	for (int i = SRV_READ; i <= SRV_ADMIN; i++)
		if (strlen(role_names[i]) == w.len && memcmp(role_names[i], w.text, w.len) == 0) {
			*out = (enum srv_role)i;
			return true;
		}
	return false;
}

static bool take_hash(struct word w, unsigned char out[SRV_HASH_BYTES])
{
	static const char kind[] = "sha256:";
	const size_t k = sizeof(kind) - 1;
	size_t n = 0;
	return w.len == k + 2 * (size_t)SRV_HASH_BYTES && memcmp(w.text, kind, k) == 0 &&
	       sodium_hex2bin(out, SRV_HASH_BYTES, w.text + k, w.len - k, NULL, &n, NULL) == 0 && n == SRV_HASH_BYTES;
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
static bool take_list(struct word w, size_t skip, char out[SRV_SCOPE_BYTES])
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/-*,";
	size_t n = w.len - skip;
	const char *text = w.text + skip;
	if (n == 0 || n >= SRV_SCOPE_BYTES || out[0] != '\0' || text[0] == ',' || text[n - 1] == ',')
		return false;
	for (size_t i = 0; i < n; i++)
		if (text[i] == '\0' || strchr(allowed, text[i]) == NULL ||
		    (i > 0 && text[i] == ',' && text[i - 1] == ',') ||
		    (text[i] == '*' && i + 1 < n && text[i + 1] != ','))
			return false;
	memcpy(out, text, n);
	out[n] = '\0';
	return true;
}

static bool begins(struct word w, const char *with)
{
	return w.len >= strlen(with) && memcmp(w.text, with, strlen(with)) == 0;
}

static bool take_scope(struct word w, struct srv_token *t)
{
	if (begins(w, "enqueue:"))
		return take_list(w, strlen("enqueue:"), t->enqueue);
	if (begins(w, "worker:"))
		return take_list(w, strlen("worker:"), t->worker);
	if (begins(w, "ship:"))
		return take_list(w, strlen("ship:"), t->ship);
	return t->role == SRV_PUBLIC && take_role(w, &t->role);
}

/* What is wrong with the line, or NULL. */
static const char *take_line(const char *p, const char *end, struct srv_token *t)
{
	struct word w;
	size_t n = 0;
	memset(t, 0, sizeof(*t));
	if (!take_name(next_word(&p, end), t->name))
		return "the name is not 1 to 64 of A-Z a-z 0-9 . _ -";
	while ((w = next_word(&p, end)).len > 0 && !begins(w, "sha256:")) {
		if (!take_scope(w, t))
			return "a scope is not one of read, write, admin, enqueue:TYPES, worker:TYPES, ship:PREFIXES, "
			       "each once";
		n++;
	}
	if (n == 0)
		return "it has no scope";
	if (!take_hash(w, t->hash))
		return "the hash is not sha256: and 64 hexadecimal digits";
	return next_word(&p, end).len == 0 ? NULL : "something follows the hash";
}

static const char *against_others(const struct srv_token *t, const struct srv_token *others, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		/* Two tokens of one name are one client, which is given a new one. */
		if (strcmp(t->name, others[i].name) == 0 &&
		    !(t->role == others[i].role && strcmp(t->enqueue, others[i].enqueue) == 0 &&
		      strcmp(t->worker, others[i].worker) == 0 && strcmp(t->ship, others[i].ship) == 0))
			return "the name was given before with other scopes";
		if (sodium_memcmp(t->hash, others[i].hash, SRV_HASH_BYTES) == 0)
			return "the hash was given before";
	}
	return NULL;
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
		const char *wrong = take_line(from, stop, &out[n]);
		wrong = wrong != NULL ? wrong : against_others(&out[n], out, n);
		if (wrong != NULL)
			return sl_err_set(err, SL_ECONFIG, "line %zu: %s", line, wrong);
		n++;
	}
	return (int)n;
}
