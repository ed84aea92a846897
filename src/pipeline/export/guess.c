/* SPDX-License-Identifier: Apache-2.0 */
/* Partitions of a sorted file, found by inspecting few of its lines. run.h says why that is safe. */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#include "format/row.h"
#include "format/text.h"
#include "pipeline/export/run.h"
#include "pipeline/partition.h"

#define LINEAR_BYTES ((size_t)32 << 10) /* so near, lines are inspected one by one */
#define PAGE ((size_t)65536)            /* at least a page, on every machine */

/* ---- mapping ---- */

/* The file is laid over the beginning of a larger stretch of zeros, so that loads may reach after its end. */
int sl__map_open(struct sl__map *out, int fd, size_t len, struct sl_err *err)
{
	size_t reserved = (len + PAGE - 1) / PAGE * PAGE + PAGE;
	char *p = mmap(NULL, reserved, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return sl_err_set_errno(err, errno, "map %zu bytes", len);
	if (mmap(p, len, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		int failed = errno;
		(void)munmap(p, reserved);
		return sl_err_set_errno(err, failed, "map %zu bytes", len);
	}
	*out = (struct sl__map){.text = p, .len = len, .reserved = reserved};
	return 0;
}

void sl__map_close(struct sl__map *map)
{
	if (map->text != NULL)
		(void)munmap((void *)(uintptr_t)map->text, map->reserved);
	*map = (struct sl__map){.text = NULL};
}

void sl__map_reader(void)
{
	sigset_t bus;
	(void)sigemptyset(&bus);
	(void)sigaddset(&bus, SIGBUS);
	(void)pthread_sigmask(SIG_UNBLOCK, &bus, NULL);
}

/* ---- lines ---- */

/* The line that begins at `at`, without its end; the place after it. */
static size_t line_at(const struct sl__guesser *g, size_t at, size_t *len)
{
	const char *end = memchr(g->text + at, '\n', g->len - at);
	size_t raw = end != NULL ? (size_t)(end - (g->text + at)) : g->len - at;
	*len = raw > 0 && g->text[at + raw - 1] == '\r' ? raw - 1 : raw;
	return at + raw + (end != NULL);
}

static bool is_blank_line(const struct sl__guesser *g, size_t at, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (g->layout->csv || (g->text[at + i] != ' ' && g->text[at + i] != '\t'))
			return false;
	return true;
}

/* The first line at or after *at that is not blank, and its number. false: there is no such line, or it has no number.
 * *next: where the line after it begins. */
static bool number_at(struct sl__guesser *g, size_t *at, size_t *next, uint64_t *number)
{
	while (*at < g->len) {
		size_t len;
		*next = line_at(g, *at, &len);
		if (!is_blank_line(g, *at, len))
			return sl__layout_sequence(g->layout, g->text + *at, len, &g->scratch, number) == NULL;
		*at = *next;
	}
	return false;
}

static size_t line_start(const struct sl__guesser *g, size_t at)
{
	const char *end = memchr(g->text + at - 1, '\n', g->len - at + 1);
	return end != NULL ? (size_t)(end - g->text) + 1 : g->len;
}

/* ---- the search ---- */

/* Where the first line with a number above `wanted` begins. The line at `low` has the number `low_number`, which is at
 * most `wanted`, and the file's last line a greater one. false: the lines are not in order. */
static bool find_above(struct sl__guesser *g, size_t low, uint64_t low_number, uint64_t wanted, size_t *out)
{
	size_t high = g->last_at, next;
	uint64_t high_number = g->last, number;

	/* Bring low and high close to each other: a line at or below the wanted number, and one above it. */
	for (unsigned round = 0; high - low > LINEAR_BYTES && round < 200; round++) {
		/* Interpolate; every fourth round halves the distance, for files whose rows grow. */
		double share = (double)(wanted + 1 - low_number) / (double)(high_number - low_number);
		size_t probe = low + (size_t)((double)(high - low) * (round % 4 == 3 ? 0.5 : share));
		/* Probe a little before it, so that the line is most likely after the probe, and near. */
		probe = probe > low + LINEAR_BYTES / 2 ? probe - LINEAR_BYTES / 4 : low + LINEAR_BYTES / 4;
		size_t at = line_start(g, SL_MIN(probe, high - 1));
		if (at >= high) {
			at = line_start(g, low + (high - low) / 2);
			if (at >= high)
				break; /* long lines: one by one */
		}
		if (!number_at(g, &at, &next, &number) || at > high || number < low_number || number > high_number)
			return false;
		if (number <= wanted) {
			low = at;
			low_number = number;
		} else {
			high = at;
			high_number = number;
		}
	}

	/* Then line by line. */
	for (size_t line = low; line < g->len; line = next) {
		if (!number_at(g, &line, &next, &number))
			return false;
		if (number > wanted) {
			*out = line;
			return true;
		}
	}
	return false;
}

int sl__guesser_init(struct sl__guesser *g, bool resume, uint64_t first)
{
	size_t from = g->at, end = g->len, next;
	sl__buf_init(&g->scratch, g->env);
	if (!number_at(g, &g->at, &next, &g->next))
		return g->at >= g->len ? SL_PIPELINE_END : SL_EAGAIN;

	/* The last line that is not blank has the last number. */
	bool found = false;
	while (!found && end > from) {
		size_t stop = end - (g->text[end - 1] == '\n'), len;
		const char *before = stop > from ? memrchr(g->text + from, '\n', stop - from) : NULL;
		g->last_at = before != NULL ? (size_t)(before - g->text) + 1 : from;
		(void)line_at(g, g->last_at, &len);
		found = !is_blank_line(g, g->last_at, len);
		end = g->last_at;
	}
	if (!found || !number_at(g, &g->last_at, &next, &g->last) || g->last < g->next)
		return SL_EAGAIN;
	return resume && g->next != first ? SL_EAGAIN : 0;
}

int sl__guesser_next(struct sl__guesser *g, struct sl_pipeline_element *out)
{
	size_t end = g->len, at = g->at, next;
	uint64_t number, last = g->last;
	if (g->at >= g->len || g->at > g->last_at)
		return SL_PIPELINE_END;
	if (!number_at(g, &at, &next, &number) || number != g->next)
		return SL_EAGAIN;
	uint64_t boundary = sl__partition_end(g->next, g->partition_size);
	if (g->last > boundary) {
		last = boundary;
		if (!find_above(g, at, number, boundary, &end))
			return SL_EAGAIN;
	}
	struct sl__run *run = sl__calloc(g->env, 1, sizeof(*run));
	if (run == NULL)
		return SL_ENOMEM;
	*run = (struct sl__run){
		.env = g->env, .text = g->text + g->at, .len = end - g->at, .end = end, .guessed = true};
	*out = (struct sl_pipeline_element){.first = g->next, .last = last, .data = run};
	g->at = end;
	g->next = last + 1;
	return 0;
}
