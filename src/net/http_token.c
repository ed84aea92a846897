/* SPDX-License-Identifier: Apache-2.0 */
/* A bearer token, most often in a file that another program renews. */
#include <fcntl.h>

#include "net/http.h"

#define TOKEN_MAX 16384

/* The first line without blanks around it; NULL: it is empty, or no text that a header can carry. */
static char *first_word(char *text)
{
	size_t n;
	text += strspn(text, " \t");
	n = strcspn(text, "\r\n");
	while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'))
		n--;
	text[n] = '\0';
	for (size_t i = 0; i < n; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return NULL;
	return n > 0 ? text : NULL;
}

static int load_token(const struct sl_env *env, const char *path, char **out, struct sl_err *err)
{
	int fd = SL__IO(env, open, path, O_RDONLY, 0);
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "http: token_file %s", path);
	char *text = sl__alloc(env, TOKEN_MAX), *word = NULL;
	struct sl_io_stat st = {0};
	int io = SL__IO(env, fstat, fd, &st), rc = 0;
	bool open_to_others = io == 0 && (st.mode & 077) != 0;
	ssize_t n = io;
	if (text != NULL && io == 0 && !open_to_others)
		n = sl__pread_full(env, fd, text, TOKEN_MAX - 1, 0);
	sl__close_fd(env, &fd);
	if (text == NULL)
		return sl_err_set(err, SL_ENOMEM, "http: out of memory");
	if (open_to_others) {
		rc = sl_err_set(err, SL_ECONFIG, "http: token_file %s is readable by other users; run: chmod 600 %s",
				path, path);
	} else if (n < 0) {
		rc = sl_err_set_errno(err, (int)-n, "http: token_file %s", path);
	} else {
		text[n] = '\0';
		word = first_word(text);
		if (word == NULL)
			rc = sl_err_set(err, SL_ECONFIG, "http: token_file %s: no token in its first line", path);
	}
	if (word != NULL) {
		*out = sl__strdup(env, word);
		rc = *out != NULL ? 0 : sl_err_set(err, SL_ENOMEM, "http: out of memory");
	}
	explicit_bzero(text, TOKEN_MAX);
	sl__free(env, text);
	return rc;
}

static void forget_token(const struct sl_env *env, char *text)
{
	if (text != NULL)
		explicit_bzero(text, strlen(text));
	sl__free(env, text);
}

int sl__http_token_init(struct sl__http_token *t, const struct sl_env *env, const char *path, struct sl_err *err)
{
	*t = (struct sl__http_token){.env = env, .path = path};
	sl__mutex_init(&t->mu);
	return path != NULL ? load_token(env, path, &t->text, err) : 0;
}

int sl__http_token_set(struct sl__http_token *t, const char *text, struct sl_err *err)
{
	char *copy = sl__strdup(t->env, text);
	if (copy == NULL)
		return sl_err_set(err, SL_ENOMEM, "http: out of memory");
	bool good = first_word(copy) == copy && strcmp(copy, text) == 0;
	if (good)
		t->text = copy;
	else
		forget_token(t->env, copy);
	return good ? 0 : sl_err_set(err, SL_EINVAL, "token: must be one word of printable ASCII");
}

void sl__http_token_fini(struct sl__http_token *t)
{
	if (t->env == NULL)
		return;
	forget_token(t->env, t->text);
	sl__mutex_fini(&t->mu);
	*t = (struct sl__http_token){.env = NULL};
}

int sl__http_token_get(struct sl__http_token *t, struct sl__buf *out, uint64_t *version)
{
	sl__buf_clear(out);
	sl__lock(&t->mu);
	int rc = t->text != NULL ? sl__buf_str_append(out, t->text) : 0;
	*version = t->version;
	sl__unlock(&t->mu);
	return rc;
}

/* Several lanes get a 401 at the same time; the first of them reads the file. */
bool sl__http_token_refresh(struct sl__http_token *t, uint64_t version)
{
	char *text = NULL;
	if (t->path == NULL)
		return false;
	sl__lock(&t->mu);
	if (t->version == version && load_token(t->env, t->path, &text, NULL) == 0 && strcmp(text, t->text) != 0) {
		char *old = t->text;
		t->text = text;
		text = old;
		t->version++;
	}
	bool another = t->version != version;
	sl__unlock(&t->mu);
	forget_token(t->env, text);
	return another;
}
