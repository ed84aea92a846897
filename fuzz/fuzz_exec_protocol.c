/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as lines on descriptor 3: no crash, a bad line changes nothing, and what holds in the end is well-formed:
 * outputs and inputs are JSON, and are in the lines as they are.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/client/types.h"
#include "jobs/exec/protocol.h"
#include "must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_holds(const struct sl__protocol *p, const char *line)
{
	switch (p->last) {
	case SL__SAYS_OUTPUT:
		MUST(sl__job_json_check(sl__buf_str(&p->text), "output", NULL) == 0);
		MUST(strstr(line, sl__buf_str(&p->text)) != NULL);
		break;
	case SL__SAYS_CONTINUE:
		MUST(p->next.type != NULL && p->next.type[0] != '\0');
		MUST(p->next.input == NULL || sl__job_json_check(p->next.input, "input", NULL) == 0);
		MUST(p->next.n_blockers <= SL__BLOCKERS_MAX);
		for (size_t i = 0; i < p->next.n_blockers; i++)
			MUST(p->next.blockers[i] > 0);
		break;
	case SL__SAYS_RESCHEDULE:
		MUST(p->reschedule_ms >= 0);
		break;
	case SL__SAYS_FAIL:
		MUST(strlen(sl__buf_str(&p->text)) == p->text.len);
		break;
	case SL__SAYS_NOTHING:
		break;
	}
}

static void one_line(struct sl__protocol *p, const uint8_t *data, size_t n)
{
	struct sl__said said;
	char *line = malloc(n + 1);
	MUST(line != NULL);
	memcpy(line, data, n);
	line[n] = '\0';
	enum sl__statement before = p->last;
	MUST(sl__protocol_line(p, line, n, &said) == 0);
	if (said.bad[0] != '\0')
		MUST(p->last == before && p->bad && said.progress == NULL);
	else if (n > 0 && p->last != before)
		check_holds(p, line);
	if (said.progress != NULL)
		MUST(said.progress >= line && said.progress + said.progress_len <= line + n);
	free(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sl_env env;
	struct sl__protocol p;
	MUST(sl__env_init(&env, NULL, NULL) == 0);
	sl__protocol_init(&p, &env);
	for (size_t at = 0; at < size;) {
		const uint8_t *newline = memchr(data + at, '\n', size - at);
		size_t n = newline != NULL ? (size_t)(newline - data) - at : size - at;
		one_line(&p, data + at, n);
		at += n + 1;
	}
	sl__protocol_fini(&p);
	return 0;
}
