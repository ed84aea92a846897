/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The syntax and the calendar of a schedule, in UTC.
 *
 *     minute hour day-of-month month day-of-week
 *     field = item {"," item}      item = ("*" | value ["-" value]) ["/" step], a step only after "*" or a range
 *
 * Months and weekdays have names (JAN, MON; any case); 0 and 7 are Sunday, and SUN at the end of a range is 7. As in
 * Vixie's cron, when neither day field begins with "*", a day that one of them matches is enough; else both must match.
 */
#include <strings.h>

#include "jobs/cron/cron.h"
#include <sluice/jobs.h>

#define MINUTE_MS INT64_C(60000)
#define DAY_MS INT64_C(86400000)
#define LAST_TICK_MS INT64_C(253402300799999) /* the end of the year 9999 */
/* 29 February falls on a given weekday every 40 years at the latest (over 2100), and no schedule is rarer than that. */
#define YEARS_AHEAD 41

/* ---- parsing ---- */

struct field {
	const char *name;
	int low, high;
	const char *const *names; /* of low, low + 1 …, ended by NULL; or NULL */
};

static const char *const month_names[] = {"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL",
					  "AUG", "SEP", "OCT", "NOV", "DEC", NULL};
static const char *const weekday_names[] = {"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT", NULL};

enum { MINUTE, HOUR, DAY, MONTH, WEEKDAY, N_FIELDS };
static const struct field fields[N_FIELDS] = {
	[MINUTE] = {"minute", 0, 59, NULL},
	[HOUR] = {"hour", 0, 23, NULL},
	[DAY] = {"day of month", 1, 31, NULL},
	[MONTH] = {"month", 1, 12, month_names},
	[WEEKDAY] = {"day of week", 0, 7, weekday_names},
};

struct parser {
	const char *spec, *at;
	struct sl_err *err;
};

static int wrong_field(struct parser *p, const char *what, const char *why)
{
	return sl_err_set(p->err, SL_EDATA, "schedule \"%.100s\": column %zu: %s: %s", p->spec,
			  (size_t)(p->at - p->spec) + 1, what, why);
}

/* A number that stays small however many digits it has; p->at moves past it. */
static int parse_digits(struct parser *p)
{
	int v = 0;
	for (; *p->at >= '0' && *p->at <= '9'; p->at++)
		v = SL_MIN(v * 10 + (*p->at - '0'), 10000);
	return v;
}

/* A number or a name. at_end: the end of a range, where SUN is 7. */
static int parse_value(struct parser *p, const struct field *f, bool at_end, int *out)
{
	const char *start = p->at;
	int v = -1;
	if (*p->at >= '0' && *p->at <= '9') {
		v = parse_digits(p);
		if (v < f->low || v > f->high) {
			p->at = start;
			return wrong_field(p, f->name, "out of range");
		}
	} else if (f->names != NULL) {
		for (int i = 0; f->names[i] != NULL && v < 0; i++)
			if (strncasecmp(p->at, f->names[i], 3) == 0)
				v = f->low + i;
		if (v >= 0)
			p->at += 3;
		if (v == 0 && at_end)
			v = 7;
	}
	if (v < 0)
		return wrong_field(p, f->name,
				   f->names != NULL ? "expected a number, a name or *" : "expected a number or *");
	*out = v;
	return 0;
}

/* A list of items up to the next blank. */
static int parse_field(struct parser *p, const struct field *f, uint64_t *bits)
{
	*bits = 0;
	for (;; p->at++) {
		const char *start = p->at;
		int low = f->low, high = f->high, step = 1;
		bool many = *p->at == '*';
		if (many) {
			p->at++;
		} else {
			int rc = parse_value(p, f, false, &low);
			if (rc != 0)
				return rc;
			high = low;
			many = *p->at == '-';
			if (many) {
				p->at++;
				rc = parse_value(p, f, true, &high);
				if (rc != 0)
					return rc;
			}
		}
		if (low > high) {
			p->at = start;
			return wrong_field(p, f->name, "the range ends before it begins");
		}
		if (*p->at == '/') {
			if (!many)
				return wrong_field(p, f->name, "a step needs * or a range before it");
			start = ++p->at;
			step = parse_digits(p);
			if (p->at == start || step < 1 || step > f->high) {
				p->at = start;
				return wrong_field(p, f->name, "a step must be 1 or more, and within the field");
			}
		}
		for (int v = low; v <= high; v += step)
			*bits |= UINT64_C(1) << v;
		if (*p->at != ',')
			break;
	}
	if (*p->at != '\0' && *p->at != ' ' && *p->at != '\t')
		return wrong_field(p, f->name, "expected ',' '-' '/' or a blank");
	return 0;
}

int sl__cron_parse(const char *spec, struct sl__cron_spec *out, struct sl_err *err)
{
	static const char *const shortcuts[][2] = {
		{"@yearly", "0 0 1 1 *"}, {"@annually", "0 0 1 1 *"}, {"@monthly", "0 0 1 * *"},
		{"@weekly", "0 0 * * 0"}, {"@daily", "0 0 * * *"},    {"@midnight", "0 0 * * *"},
		{"@hourly", "0 * * * *"},
	};
	uint64_t bits[N_FIELDS];
	bool star[N_FIELDS];
	struct parser p = {.spec = spec, .at = spec, .err = err};
	for (size_t i = 0; i < SL_COUNT(shortcuts); i++)
		if (strcmp(spec, shortcuts[i][0]) == 0)
			p.at = shortcuts[i][1];
	if (*p.at == '@')
		return wrong_field(&p, "shortcut", "give @yearly, @monthly, @weekly, @daily or @hourly");
	for (int i = 0; i < N_FIELDS; i++) {
		p.at += strspn(p.at, " \t");
		star[i] = *p.at == '*';
		if (*p.at == '\0')
			return wrong_field(&p, fields[i].name, "missing; a schedule has five fields");
		int rc = parse_field(&p, &fields[i], &bits[i]);
		if (rc != 0)
			return rc;
	}
	p.at += strspn(p.at, " \t");
	if (*p.at != '\0')
		return wrong_field(&p, "end", "a schedule has five fields");
	*out = (struct sl__cron_spec){
		.minutes = bits[MINUTE],
		.hours = (uint32_t)bits[HOUR],
		.days = (uint32_t)bits[DAY],
		.months = (uint16_t)bits[MONTH],
		.weekdays = (uint8_t)((bits[WEEKDAY] | bits[WEEKDAY] >> 7) & 0x7F),
		.either_day = !star[DAY] && !star[WEEKDAY],
	};
	return 0;
}

/* ---- the calendar ---- */

struct date {
	int64_t year;
	int month, day;
};

static int days_of_month(int64_t year, int month)
{
	static const int8_t days[] = {0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
	return month == 2 && leap ? 29 : days[month];
}

/* Days from 1 January 1970 to 1 January of the year. */
static int64_t days_before_year(int64_t year)
{
	int64_t y = year - 1;
	return y * 365 + y / 4 - y / 100 + y / 400 - 719162;
}

/* The date of a day from 1970 on. */
static struct date date_of(int64_t day)
{
	struct date d = {.year = 1970 + day / 366, .month = 1};
	while (days_before_year(d.year + 1) <= day)
		d.year++;
	int64_t left = day - days_before_year(d.year);
	for (; left >= days_of_month(d.year, d.month); d.month++)
		left -= days_of_month(d.year, d.month);
	d.day = (int)left + 1;
	return d;
}

/* The first minute of a matching day that is not before `minute`, in minutes of the day; -1: none. */
static int minute_from(const struct sl__cron_spec *s, int minute)
{
	for (int hour = minute / 60, m = minute % 60; hour < 24; hour++, m = 0) {
		uint64_t left = s->minutes >> m;
		if ((s->hours >> hour & 1) != 0 && left != 0)
			return hour * 60 + m + __builtin_ctzll(left);
	}
	return -1;
}

int sl__cron_after(const struct sl__cron_spec *spec, int64_t after_ms, int64_t *next_ms)
{
	/* Ticks are on whole minutes, from 1970 on. */
	if (after_ms >= LAST_TICK_MS - MINUTE_MS)
		return SL_ENOENT;
	int64_t minute = after_ms < 0 ? 0 : after_ms / MINUTE_MS + 1;
	int64_t day = minute / 1440;
	int from = (int)(minute % 1440);
	struct date d = date_of(day);
	int64_t last_year = SL_MIN(d.year + YEARS_AHEAD, 9999);
	for (; d.year <= last_year; day++, from = 0) {
		if ((spec->months >> d.month & 1) == 0) {
			/* The last day of a month that does not match. */
			day += days_of_month(d.year, d.month) - d.day;
			d.day = days_of_month(d.year, d.month);
		} else {
			bool by_date = (spec->days >> d.day & 1) != 0;
			bool by_weekday = (spec->weekdays >> (day + 4) % 7 & 1) != 0; /* 1970 began on a Thursday */
			bool matches = spec->either_day ? by_date || by_weekday : by_date && by_weekday;
			int at = matches ? minute_from(spec, from) : -1;
			if (at >= 0) {
				*next_ms = day * DAY_MS + at * MINUTE_MS;
				return 0;
			}
		}
		/* To the next day. */
		if (++d.day > days_of_month(d.year, d.month)) {
			d.day = 1;
			d.month = d.month % 12 + 1;
			d.year += d.month == 1;
		}
	}
	return SL_ENOENT;
}

int sl_cron_next(const char *spec, int64_t after_ms, int64_t *next_ms, struct sl_err *err)
{
	struct sl__cron_spec parsed;
	int rc = sl__cron_parse(spec, &parsed, err);
	if (rc != 0)
		return rc;
	if (sl__cron_after(&parsed, after_ms, next_ms) != 0)
		return sl_err_set(err, SL_ENOENT, "schedule \"%.100s\": no such date exists", spec);
	return 0;
}
