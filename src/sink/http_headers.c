/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The headers that the user adds to requests: those of the options, and those of a file.
 *
 * The file has one "Name: value" per line. Blank lines, and lines whose first character is a '#', are ignored; blanks and
 * a carriage return at the end of a line do not count. Anything else is refused with the number of the line. Values may
 * be secret: a message has a name at most.
 */
#include <fcntl.h>
#include <stdio.h>

#include "sink/http.h"

#define FILE_MAX 65536

/* ---- one header ---- */

/* `where` names the header. *authorized: a header sets Authorization; set here when this one does. */
static int check_http_header(const char *h, const char *where, int code, bool *authorized, struct sl_err *err)
{
	static const char *const ours[] = {"Content-Type",      "Content-Length", "Idempotency-Key",
					   "Transfer-Encoding", "Expect",         "Connection"};
	for (const char *p = h; *p != '\0'; p++)
		if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7F)
			return sl_err_set(err, code, "http: %s has a control character", where);
	size_t n = strspn(h, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
	if (n == 0 || h[n] != ':' || h[n + 1 + strspn(h + n + 1, " \t")] == '\0')
		return sl_err_set(err, code, "http: %s is not \"Name: value\"", where);
	for (size_t i = 0; i < SL_COUNT(ours); i++)
		if (strlen(ours[i]) == n && strncasecmp(h, ours[i], n) == 0)
			return sl_err_set(err, code, "http: %s: the sink sets %.*s itself", where, (int)n, h);
	if (n != 13 || strncasecmp(h, "Authorization", n) != 0)
		return 0;
	if (*authorized)
		return sl_err_set(err, code,
				  "http: %s: Authorization is already set by the token, the URL or another header",
				  where);
	*authorized = true;
	return 0;
}

/* ---- the file ---- */

static void drop_headers(const struct sl_env *env, struct sl__http_header_list *list)
{
	if (list == NULL)
		return;
	explicit_bzero(list->text, FILE_MAX + 2);
	sl__free(env, list);
}

/* Fill an empty list from the file. At most FILE_MAX bytes are read, and one more, to see that there are too many. */
static int read_header_file(const struct sl__http_headers *h, struct sl__http_header_list *list, struct sl_err *err)
{
	const char *path = h->opts->header_file;
	int fd = SL__IO(h->env, open, path, O_RDONLY, 0);
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "http: header_file %s", path);
	ssize_t n = sl__pread_full(h->env, fd, list->text, FILE_MAX + 1, 0);
	sl__close_fd(h->env, &fd);
	if (n < 0)
		return sl_err_set_errno(err, (int)-n, "http: header_file %s", path);
	if (n > FILE_MAX)
		return sl_err_set(err, SL_ECONFIG, "http: header_file %s: longer than 64 KiB", path);
	list->bytes = (size_t)n;
	list->text[n] = '\0';

	char *end = list->text + list->bytes, where[256];
	bool authorized = h->authorized;
	size_t number = 0;
	for (char *line = list->text, *next; line != NULL; line = next) {
		/* Cut the line off at its end, which may be that of the text. */
		char *stop = memchr(line, '\n', (size_t)(end - line)), *last = stop != NULL ? stop : end;
		while (last > line && (last[-1] == '\r' || last[-1] == ' ' || last[-1] == '\t'))
			last--;
		*last = '\0';
		if (memchr(line, '\0', (size_t)(last - line)) != NULL) /* not text: make it one that is refused */
			*line = '\1';
		next = stop != NULL ? stop + 1 : NULL;
		number++;
		if (line[0] == '#' || line[strspn(line, " \t")] == '\0')
			continue;
		(void)snprintf(where, sizeof(where), "header_file %.180s: line %zu", path, number);
		int rc = check_http_header(line, where, SL_ECONFIG, &authorized, err);
		if (rc != 0)
			return rc;
		if (list->n == SL__HTTP_FILE_HEADERS)
			return sl_err_set(err, SL_ECONFIG, "http: %s: more than %d headers", where,
					  SL__HTTP_FILE_HEADERS);
		list->lines[list->n++] = line;
	}
	return list->n > 0 ? 0 : sl_err_set(err, SL_ECONFIG, "http: header_file %s: no headers in it", path);
}

static int load_headers(const struct sl__http_headers *h, struct sl__http_header_list **out, struct sl_err *err)
{
	struct sl__http_header_list *list = sl__calloc(h->env, 1, sizeof(*list) + FILE_MAX + 2);
	if (list == NULL)
		return sl__no_memory(err, "http");
	list->refs = 1;
	int rc = read_header_file(h, list, err);
	if (rc != 0)
		drop_headers(h->env, list);
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
	for (size_t i = 0; i < opts->n_headers; i++) {
		const char *header = opts->headers[i] != NULL ? opts->headers[i] : "";
		char where[64];
		(void)snprintf(where, sizeof(where), "headers: number %zu", i + 1);
		int rc = check_http_header(header, where, SL_EINVAL, &h->authorized, err);
		if (rc != 0)
			return rc;
	}
	return opts->header_file == NULL ? 0 : load_headers(h, &h->list, err);
}

void sl__http_headers_fini(struct sl__http_headers *h)
{
	if (h->env == NULL)
		return;
	assert(h->list == NULL || h->list->refs == 1);
	drop_headers(h->env, h->list);
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
		drop_headers(h->env, list);
}

/* Several lanes get a 401 at the same time; the first of them reads the file. */
bool sl__http_headers_refresh(struct sl__http_headers *h, const struct sl__http_header_list *used)
{
	struct sl__http_header_list *fresh = NULL, *old = NULL;
	if (used == NULL)
		return false;
	sl__lock(&h->mu);
	if (h->list == used && load_headers(h, &fresh, NULL) == 0) {
		bool same = fresh->n == used->n;
		for (size_t i = 0; same && i < used->n; i++)
			same = strcmp(fresh->lines[i], used->lines[i]) == 0;
		if (!same) {
			old = h->list;
			h->list = fresh;
			fresh = NULL;
		}
	}
	bool another = h->list != used;
	sl__unlock(&h->mu);
	drop_headers(h->env, fresh);
	sl__http_headers_put(h, old);
	return another;
}
