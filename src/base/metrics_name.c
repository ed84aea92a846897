/* SPDX-License-Identifier: Apache-2.0 */
/* The conventions for names and labels, checked when a metric is made: a wrong name is a bug to find at once. */
#include "base/metrics.h"
#include "base/utf8.h"

#define MAX_NAME_BYTES 128
#define MAX_LABEL_BYTES 128

/* Letters, digits and '_', no digit first. */
static bool is_metric_word(const char *s)
{
	size_t n = 0;
	for (; s[n] != '\0'; n++) {
		bool letter = (s[n] >= 'a' && s[n] <= 'z') || (s[n] >= 'A' && s[n] <= 'Z') || s[n] == '_';
		if (!letter && (n == 0 || s[n] < '0' || s[n] > '9'))
			return false;
	}
	return n > 0 && n <= MAX_NAME_BYTES;
}

/* Does name, of which the first n bytes count, end in suffix? */
static bool ends_in(const char *name, size_t n, const char *suffix)
{
	size_t k = strlen(suffix);
	return n > k && memcmp(name + n - k, suffix, k) == 0;
}

static int check_metric_name(const struct sl__metric_spec *spec, struct sl_err *err)
{
	static const char *const reserved[] = {"_count", "_sum", "_bucket"};
	static const char *const derived[] = {
		"_ns",    "_us", "_ms",  "_nanoseconds", "_microseconds", "_millis",    "_milliseconds", "_minutes",
		"_hours", "_kb", "_kib", "_mb",          "_mib",          "_kilobytes", "_megabytes",    "_percent"};
	if (spec->name == NULL || !is_metric_word(spec->name))
		return sl_err_set(err, SL_EINVAL, "metric name \"%.64s\": letters, digits and _ only, no digit first",
				  spec->name != NULL ? spec->name : "");
	size_t n = strlen(spec->name);
	bool total = ends_in(spec->name, n, "_total");
	if (total != (spec->kind == SL__COUNTER))
		return sl_err_set(err, SL_EINVAL, "metric %s: the names of counters, and no others, end in _total",
				  spec->name);
	for (size_t i = 0; i < SL_COUNT(reserved); i++)
		if (ends_in(spec->name, n, reserved[i]))
			return sl_err_set(err, SL_EINVAL, "metric %s: the ending %s is reserved for histograms",
					  spec->name, reserved[i]);

	/* The unit, which comes before _total. */
	if (total)
		n -= strlen("_total");
	for (size_t i = 0; i < SL_COUNT(derived); i++)
		if (ends_in(spec->name, n, derived[i]))
			return sl_err_set(err, SL_EINVAL,
					  "metric %s: use base units (_seconds, _bytes, _ratio), not %s", spec->name,
					  derived[i]);
	if (spec->kind != SL__HISTOGRAM)
		return 0;
	if (spec->unit < SL_UNIT_NANOSECONDS || spec->unit > SL_UNIT_COUNT)
		return sl_err_set(err, SL_EINVAL, "metric %s: unknown unit %d", spec->name, (int)spec->unit);
	if (ends_in(spec->name, n, "_seconds") != (spec->unit == SL_UNIT_NANOSECONDS) ||
	    ends_in(spec->name, n, "_bytes") != (spec->unit == SL_UNIT_BYTES))
		return sl_err_set(err, SL_EINVAL, "metric %s: its name must end in its unit: _seconds or _bytes",
				  spec->name);
	return 0;
}

static int check_label(const struct sl__metric_spec *spec, size_t at, struct sl_err *err)
{
	const struct sl_metric_label *label = &spec->labels[at];
	if (label->name == NULL || !is_metric_word(label->name) || strncmp(label->name, "__", 2) == 0)
		return sl_err_set(err, SL_EINVAL, "metric %s: bad label name \"%.64s\"", spec->name,
				  label->name != NULL ? label->name : "");
	if (strcmp(label->name, "le") == 0 || strcmp(label->name, "quantile") == 0)
		return sl_err_set(err, SL_EINVAL, "metric %s: the label name %s is reserved", spec->name, label->name);
	if (label->value == NULL || strlen(label->value) > MAX_LABEL_BYTES || !sl__utf8_valid(label->value))
		return sl_err_set(err, SL_EINVAL, "metric %s: the value of label %s must be UTF-8 of at most %d bytes",
				  spec->name, label->name, MAX_LABEL_BYTES);
	for (size_t i = 0; i < at; i++)
		if (strcmp(spec->labels[i].name, label->name) == 0)
			return sl_err_set(err, SL_EINVAL, "metric %s: label %s twice", spec->name, label->name);
	return 0;
}

int sl__metric_check(const struct sl__metric_spec *spec, struct sl_err *err)
{
	int rc = check_metric_name(spec, err);
	if (rc != 0)
		return rc;
	if (spec->help == NULL || spec->help[0] == '\0' || !sl__utf8_valid(spec->help))
		return sl_err_set(err, SL_EINVAL, "metric %s: needs a help text in UTF-8", spec->name);
	if (spec->n_labels > SL_METRIC_MAX_LABELS || (spec->n_labels > 0 && spec->labels == NULL))
		return sl_err_set(err, SL_EINVAL, "metric %s: at most %d labels", spec->name, SL_METRIC_MAX_LABELS);
	for (size_t i = 0; i < spec->n_labels; i++) {
		rc = check_label(spec, i, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

void sl__metric_escape(struct sl__buf *b, const char *text, bool quote)
{
	for (const char *s = text; *s != '\0'; s++) {
		if (*s == '\n')
			(void)sl__buf_append(b, "\\n", 2);
		else if (*s == '\\' || (quote && *s == '"'))
			(void)sl__buf_append(b, (const char[]){'\\', *s}, 2);
		else
			(void)sl__buf_append(b, s, 1);
	}
}

void sl__metric_label_text(const struct sl__metric_spec *spec, struct sl__buf *text, struct sl__buf *names)
{
	const struct sl_metric_label *sorted[SL_METRIC_MAX_LABELS];
	for (size_t i = 0; i < spec->n_labels; i++) {
		size_t at = i;
		for (; at > 0 && strcmp(sorted[at - 1]->name, spec->labels[i].name) > 0; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = &spec->labels[i];
	}
	(void)sl__buf_reserve(text, 0); /* without labels, too, the texts are strings of their own */
	(void)sl__buf_reserve(names, 0);
	for (size_t i = 0; i < spec->n_labels; i++) {
		const char *comma = i > 0 ? "," : "";
		(void)sl__buf_printf(names, "%s%s", comma, sorted[i]->name);
		(void)sl__buf_printf(text, "%s%s=\"", comma, sorted[i]->name);
		sl__metric_escape(text, sorted[i]->value, true);
		(void)sl__buf_str_append(text, "\"");
	}
}
