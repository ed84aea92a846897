/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The headers that the user adds to requests: those of the options, and those of a file.
 *
 * The file has one "Name: value" a line. Blank lines, and lines whose first character is a '#', say nothing; blanks and
 * a carriage return at the end of a line do not count. Anything else is refused with the number of the line. Values may
 * be secret: a message has a name at most.
 */
#include <fcntl.h>
#include <stdio.h>

#include "sink/http.h"

#define FILE_MAX 65536

/* ---- one header ---- */

/* The name of a header, when the sink sets it itself. */
static bool is_ours(const char *header, size_t n)
{
	static const char *const names[] = {"Content-Type",      "Content-Length", "Idempotency-Key",
					    "Transfer-Encoding", "Expect",         "Connection"};
	for (size_t i = 0; i < SL_COUNT(names); i++)
		if (strlen(names[i]) == n && strncasecmp(header, names[i], n) == 0)
			return true;
	return false;
}

/* How long the name of "Name: value" is; 0: it is no such thing. */
static size_t name_length(const char *h)
{
	size_t n = strspn(h, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
	return n > 0 && h[n] == ':' && h[n + 1 + strspn(h + n + 1, " \t")] != '\0' ? n : 0;
}

static bool has_control(const char *h)
{
	for (const char *p = h; *p != '\0'; p++)
		if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7F)
			return true;
	return false;
}

/* `where` names the header. *authorized: a header sets Authorization; set here when this one does. */
static int check_header(const char *h, const char *where, int code, bool *authorized, struct sl_err *err)
{
	size_t n = name_length(h);
	if (has_control(h))
		return sl_err_set(err, code, "http: %s has a control character", where);
	if (n == 0)
		return sl_err_set(err, code, "http: %s is not \"Name: value\"", where);
	if (is_ours(h, n))
		return sl_err_set(err, code, "http: %s: the sink itself sets %.*s", where, (int)n, h);
	if (n != 13 || strncasecmp(h, "Authorization", n) != 0)
		return 0;
	if (*authorized)
		return sl_err_set(err, code,
				  "http: %s: Authorization is set by the token, the URL or a header before it", where);
	*authorized = true;
	return 0;
}

static int check_options(struct sl__http_headers *h, struct sl_err *err)
{
	const struct sl_sink_opts *o = h->opts;
	char where[64];
	for (size_t i = 0; i < o->n_headers; i++) {
		(void)snprintf(where, sizeof(where), "headers: number %zu", i + 1);
		int rc =
			check_header(o->headers[i] != NULL ? o->headers[i] : "", where, SL_EINVAL, &h->authorized, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* ---- the file ---- */

static void drop(const struct sl_env *env, struct sl__http_header_list *list)
{
	if (list == NULL)
		return;
	explicit_bzero(list->text, FILE_MAX + 2);
	sl__free(env, list);
}

/* At most FILE_MAX bytes and one more, which says that there are too many. */
static int read_file(const struct sl_env *env, const char *path, struct sl__http_header_list *list, struct sl_err *err)
{
	int fd = SL__IO(env, open, path, O_RDONLY, 0);
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "http: header_file %s", path);
	ssize_t n = sl__pread_full(env, fd, list->text, FILE_MAX + 1, 0);
	sl__close_fd(env, &fd);
	if (n < 0)
		return sl_err_set_errno(err, (int)-n, "http: header_file %s", path);
	list->bytes = (size_t)n;
	list->text[n] = '\0';
	return n <= FILE_MAX ? 0 : sl_err_set(err, SL_ECONFIG, "http: header_file %s: longer than 64 KiB", path);
}

static bool says_nothing(const char *line)
{
	return line[0] == '#' || line[strspn(line, " \t")] == '\0';
}

/* Cut the line off at its end, which may be that of the text. Where the next one begins; NULL: nowhere. */
static char *end_line(char *line, char *end)
{
	char *stop = memchr(line, '\n', (size_t)(end - line)), *last = stop != NULL ? stop : end;
	while (last > line && (last[-1] == '\r' || last[-1] == ' ' || last[-1] == '\t'))
		last--;
	*last = '\0';
	if (memchr(line, '\0', (size_t)(last - line)) != NULL) /* no text: leave something that is refused as such */
		*line = '\1';
	return stop != NULL ? stop + 1 : NULL;
}

static int take_lines(const struct sl__http_headers *h, struct sl__http_header_list *list, struct sl_err *err)
{
	char *end = list->text + list->bytes, where[256];
	bool authorized = h->authorized;
	size_t number = 0;
	for (char *line = list->text, *next; line != NULL; line = next) {
		next = end_line(line, end);
		number++;
		if (says_nothing(line))
			continue;
		(void)snprintf(where, sizeof(where), "header_file %.180s: line %zu", h->opts->header_file, number);
		int rc = check_header(line, where, SL_ECONFIG, &authorized, err);
		if (rc != 0)
			return rc;
		if (list->n == SL__HTTP_FILE_HEADERS)
			return sl_err_set(err, SL_ECONFIG, "http: %s: more than %d headers", where,
					  SL__HTTP_FILE_HEADERS);
		list->lines[list->n++] = line;
	}
	return list->n > 0
		       ? 0
		       : sl_err_set(err, SL_ECONFIG, "http: header_file %s: it has no header", h->opts->header_file);
}

static int load(const struct sl__http_headers *h, struct sl__http_header_list **out, struct sl_err *err)
{
	struct sl__http_header_list *list = sl__calloc(h->env, 1, sizeof(*list) + FILE_MAX + 2);
	if (list == NULL)
		return sl__no_memory(err, "http");
	list->refs = 1;
	int rc = read_file(h->env, h->opts->header_file, list, err);
	rc = rc != 0 ? rc : take_lines(h, list, err);
	if (rc != 0)
		drop(h->env, list);
	else
		*out = list;
	return rc;
}

/* ---- the handle ---- */

int sl__http_headers_init(struct sl__http_headers *h, const struct sl_env *env, const struct sl_sink_opts *opts,
			  bool authorized, struct sl_err *err)
{
	*h = (struct sl__http_headers){.env = env, .opts = opts, .authorized = authorized};
	sl__mutex_init(&h->mu);
	int rc = check_options(h, err);
	return rc != 0 || opts->header_file == NULL ? rc : load(h, &h->list, err);
}

void sl__http_headers_fini(struct sl__http_headers *h)
{
	if (h->env == NULL)
		return;
	assert(h->list == NULL || h->list->refs == 1);
	drop(h->env, h->list);
	sl__mutex_fini(&h->mu);
	*h = (struct sl__http_headers){.env = NULL};
}

struct sl__http_header_list *sl__http_headers_get(struct sl__http_headers *h)
{
	sl__lock(&h->mu);
	struct sl__http_header_list *list = h->list;
	if (list != NULL)
		list->refs++;
	sl__unlock(&h->mu);
	return list;
}

void sl__http_headers_put(struct sl__http_headers *h, struct sl__http_header_list *list)
{
	if (list == NULL)
		return;
	sl__lock(&h->mu);
	bool last = --list->refs == 0;
	sl__unlock(&h->mu);
	if (last)
		drop(h->env, list);
}

static bool same(const struct sl__http_header_list *a, const struct sl__http_header_list *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (strcmp(a->lines[i], b->lines[i]) != 0)
			return false;
	return true;
}

/* Several lanes get a 401 at once; the first of them reads the file. */
bool sl__http_headers_refresh(struct sl__http_headers *h, const struct sl__http_header_list *used)
{
	struct sl__http_header_list *fresh = NULL, *old = NULL;
	if (used == NULL)
		return false;
	sl__lock(&h->mu);
	if (h->list == used && load(h, &fresh, NULL) == 0 && !same(fresh, used)) {
		old = h->list;
		h->list = fresh;
		fresh = NULL;
	}
	bool another = h->list != used;
	sl__unlock(&h->mu);
	drop(h->env, fresh);
	sl__http_headers_put(h, old);
	return another;
}
