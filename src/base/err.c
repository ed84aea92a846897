/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: the table of codes, classes and texts, and how messages are set and wrapped. See sluice/err.h. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/base.h"

struct code_row {
	int code, exit_code;
	const char *name, *text;
};

static const struct code_row code_rows[] = {
#define ROW(name_, value, exit_code_, text_) {value, exit_code_, #name_, text_},
	SL_ERR_TABLE(ROW)
#undef ROW
};

static const struct code_row *find_row(int code)
{
	for (size_t i = 0; i < SL_COUNT(code_rows); i++)
		if (code_rows[i].code == code)
			return &code_rows[i];
	return NULL;
}

const char *sl_err_name(int code)
{
	const struct code_row *row = find_row(code);
	return code == 0 ? "OK" : row != NULL ? row->name : "EUNKNOWN";
}

const char *sl_err_text(int code)
{
	const struct code_row *row = find_row(code);
	return code == 0 ? "done" : row != NULL ? row->text : "unknown error";
}

int sl_err_exit_code(int code)
{
	const struct code_row *row = find_row(code);
	return code == 0 ? 0 : row != NULL ? row->exit_code : 70;
}

const char *sl_err_class_name(enum sl_err_class error_class)
{
	static const char *const names[] = {"none", "transient", "throttled", "poison", "fatal"};
	return (unsigned)error_class < SL_COUNT(names) ? names[error_class] : "none";
}

bool sl_err_retryable(const struct sl_err *err)
{
	if (err->error_class == SL_CLASS_FATAL)
		return err->code == SL_EUNAVAIL;
	return err->error_class == SL_CLASS_TRANSIENT || err->error_class == SL_CLASS_THROTTLED;
}

/* A cut message ends at a whole UTF-8 character. */
static void trim_partial_utf8(char *msg, size_t size)
{
	size_t len = strlen(msg);
	if (len + 1 < size)
		return;
	size_t at = len;
	while (at > 0 && len - at < 3 && ((unsigned char)msg[at - 1] & 0xC0) == 0x80)
		at--;
	if (at == 0)
		return;
	unsigned char lead = (unsigned char)msg[at - 1];
	size_t need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
	if (need > len - at + 1)
		msg[at - 1] = '\0';
}

static void SL_PRINTF(3, 0) fill(struct sl_err *err, int code, const char *fmt, va_list args)
{
	memset(err, 0, sizeof(*err));
	err->code = code;
	(void)vsnprintf(err->msg, sizeof(err->msg), fmt, args);
	trim_partial_utf8(err->msg, sizeof(err->msg));
	switch (err->code) {
	case SL_ENOSPC:
	case SL_EAGAIN:
	case SL_ETIMEDOUT:
	case SL_EFULL:
	case SL_ELOCKED:
	case SL_ENOMEM:
		err->error_class = SL_CLASS_TRANSIENT;
		break;
	case SL_EUNAVAIL:
		err->error_class = SL_CLASS_FATAL;
		break;
	case SL_EREFUSED:
	case SL_EDATA:
	case SL_ETOOBIG:
		err->error_class = SL_CLASS_POISON;
		break;
	default:
		err->error_class = SL_CLASS_NONE;
		break;
	}
}

int sl_err_set(struct sl_err *err, int code, const char *fmt, ...)
{
	if (err != NULL) {
		va_list args;
		va_start(args, fmt);
		fill(err, code, fmt, args);
		va_end(args);
	}
	return code;
}

int sl__no_memory(struct sl_err *err, const char *what)
{
	return sl_err_set(err, SL_ENOMEM, "%s: out of memory", what);
}

static int code_of_errno(int sys_errno)
{
	switch (sys_errno) {
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return SL_ENOSPC;
	case ENOMEM:
		return SL_ENOMEM;
	case ENOENT:
		return SL_ENOENT;
	case EEXIST:
		return SL_EEXIST;
	case EACCES:
	case EPERM:
	case EROFS:
	case ELOOP:
		return SL_EACCES;
	case EWOULDBLOCK:
		return SL_ELOCKED;
	case ETIMEDOUT:
		return SL_ETIMEDOUT;
	case ECONNREFUSED:
	case ECONNRESET:
	case EHOSTUNREACH:
	case ENETUNREACH:
	case EPIPE:
		return SL_EUNAVAIL;
	case EINVAL:
		return SL_EINVAL;
	default:
		return SL_EIO;
	}
}

int sl_err_set_errno(struct sl_err *err, int sys_errno, const char *fmt, ...)
{
	int code = code_of_errno(sys_errno);
	if (err != NULL) {
		va_list args;
		va_start(args, fmt);
		fill(err, code, fmt, args);
		va_end(args);
		err->sys_errno = sys_errno;
		char text[96];
		size_t used = strlen(err->msg);
		const char *why = strerror_r(sys_errno, text, sizeof(text));
		(void)snprintf(err->msg + used, sizeof(err->msg) - used, ": %s", why);
		trim_partial_utf8(err->msg, sizeof(err->msg));
	}
	return code;
}

int sl_err_wrap(struct sl_err *err, int code, const char *fmt, ...)
{
	if (err != NULL) {
		char old[SL_ERR_MSG_BYTES];
		memcpy(old, err->msg, sizeof(old));
		va_list args;
		va_start(args, fmt);
		(void)vsnprintf(err->msg, sizeof(err->msg), fmt, args);
		va_end(args);
		size_t used = strlen(err->msg);
		(void)snprintf(err->msg + used, sizeof(err->msg) - used, ": %s", old);
		trim_partial_utf8(err->msg, sizeof(err->msg));
	}
	return code;
}
