/* SPDX-License-Identifier: Apache-2.0 */
/* The exec sink passes the suite, with a shell script as the program. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sink/contract.h"
#include "sink/place.h"

static struct place place;

/* Takes a batch whole or not at all: refuses poison, fails while `away` is there, hangs while `stuck` is there, after
 * it has written a line to the pipe `hung`. */
static const char script[] = "cd \"$(dirname \"$TARGET\")\" || exit 69\n"
			     "[ -e away ] && { echo 'closed today' >&2; exit 69; }\n"
			     "[ -e stuck ] && { echo > hung; exec sleep 100000; }\n"
			     "batch=$(cat)\n"
			     "case $batch in *poison*) echo 'no poison here' >&2; exit 65;; esac\n"
			     "exec 9>> lock && flock 9 && printf '%s\\n' \"$batch\" >> out\n";

static int set_up(void *ctx)
{
	(void)ctx;
	if (place_init(&place, "out") != 0)
		return -1;
	place_write(place_file(&place, "program"), script, sizeof(script) - 1);
	return setenv("TARGET", place.path, 1);
}

static void tear_down(void *ctx)
{
	(void)ctx;
	place_fini(&place);
}

static int open_exec(sl_sink *out, const struct sl_env *env, struct sl_err *err, void *ctx)
{
	char url[256];
	(void)ctx;
	(void)snprintf(url, sizeof(url), "exec:. %s", place_file(&place, "program"));
	return sl_sink_open(out, url, &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .env = env, .timeout_ms = 100000}, err);
}

static size_t poison(char *out, size_t cap, uint64_t id, void *ctx)
{
	(void)ctx;
	return (size_t)snprintf(out, cap, "{\"id\":%llu,\"body\":\"poison\"}", (unsigned long long)id);
}

static void read_back(struct sink_ids *out, void *ctx)
{
	char *text = place_read(place.path, NULL);
	(void)ctx;
	for (char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n') + 1) {
		if (strncmp(line, "{\"id\":", 6) != 0)
			abort();
		sink_ids_add(out, strtoull(line + 6, NULL, 10));
	}
	free(text);
}

static void put(const char *name)
{
	place_write(place_file(&place, name), "", 0);
}

static void go_away(void *ctx)
{
	(void)ctx;
	put("away");
}

static void come_back(void *ctx)
{
	(void)ctx;
	(void)unlink(place_file(&place, "away"));
}

static void hang(void *ctx)
{
	(void)ctx;
	if (mkfifo(place_file(&place, "hung"), 0600) != 0)
		abort();
	put("stuck");
}

static void await_hang(void *ctx)
{
	char line;
	(void)ctx;
	int fd = open(place_file(&place, "hung"), O_RDONLY | O_CLOEXEC); /* waits for a writer */
	if (fd < 0 || read(fd, &line, 1) != 1)
		abort();
	(void)close(fd);
}

static void let_go(void *ctx)
{
	(void)ctx;
	(void)unlink(place_file(&place, "stuck"));
}

int main(int argc, char **argv)
{
	const struct sink_fixture f = {.name = "exec",
				       .set_up = set_up,
				       .tear_down = tear_down,
				       .open = open_exec,
				       .poison_item = poison,
				       .read_back = read_back,
				       .break_target = go_away,
				       .mend_target = come_back,
				       .hang = hang,
				       .await_hang = await_hang,
				       .let_go = let_go};
	return sink_contract_run(&f, sink_contract_part(argc, argv, NULL));
}
