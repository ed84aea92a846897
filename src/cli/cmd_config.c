/* SPDX-License-Identifier: Apache-2.0 */
/* sluice config: check a configuration file, and list every setting that there is. */
#include "commands.h"
#include "serving.h"

#include <string.h>

static int run_check(struct cli *cli, const struct parsed *args)
{
	const char *path = args->operands[0];
	struct serving_problems problems = {.cli = cli, .path = path};
	struct srv_config config;
	struct sl_err err = SL_ERR_INIT;
	int rc = srv_config_init(&config, &err);

	rc = rc ? rc : srv_config_file(&config, path, serving_problem, &problems, &err);
	srv_config_fini(&config);
	if (rc)
		return problems.n ? sl_err_exit_code(SL_ECONFIG) : cli_fail(cli, &err, path);
	out_printf(&cli->out, "%s: good\n", path);
	return EXIT_OK;
}

const struct command cmd_config_check = {
	.name = "config check",
	.operands = "FILE",
	.summary = "say what is wrong in a configuration file, and where",
	.description = "Names every problem as FILE:LINE:COLUMN, with the nearest known name for one that is not. The "
		       "environment is not read. Nothing is started.",
	.example = "sluice config check sluice.yaml",
	.run = run_check,
};

static const char *const kind_names[] = {
	[SRV_TEXT] = "text",   [SRV_PATH] = "path",     [SRV_NUMBER] = "number", [SRV_MILLIS] = "milliseconds",
	[SRV_BYTES] = "bytes", [SRV_SWITCH] = "switch", [SRV_CHOICE] = "choice", [SRV_LIST] = "list"};

static void list_json(struct out *out, const struct srv_setting *s)
{
	char env[SRV_ENV_BYTES], expects[160];
	json_t *j =
		json_pack("{s:s, s:s, s:s, s:s?, s:s?, s:s, s:s, s:s}", "section", s->section, "name", s->name, "kind",
			  kind_names[s->kind], "default", s->def, "flag", s->flag, "env", srv_setting_env(s, env),
			  "expects", srv_setting_expects(s, expects, sizeof(expects)), "help", s->help);

	out_json(out, j);
	out_str(out, "\n");
}

/* As a file in which every default is a comment: a start for one's own. */
static void list_yaml(struct out *out, const struct srv_setting *s, const struct srv_setting *before)
{
	char env[SRV_ENV_BYTES];

	if (!before || strcmp(before->section, s->section) != 0)
		out_printf(out, "%s%s:\n", before ? "\n" : "", s->section);
	out_printf(out, "  # %s\n  # %s", s->help, srv_setting_env(s, env));
	if (s->flag)
		out_printf(out, ", --%s", s->flag);
	out_printf(out, "\n  # %s: %s\n", s->name, s->def ? s->def : s->kind == SRV_LIST ? "[]" : "");
}

/* Rows of one section stand together, in the order of the sections' first rows. */
static void list_all(struct out *out, int json)
{
	const struct srv_setting *before = NULL;

	for (const struct srv_setting *first = srv_settings; first->section; first++) {
		int again = 0;

		for (const struct srv_setting *s = srv_settings; s < first; s++)
			again |= strcmp(s->section, first->section) == 0;
		for (const struct srv_setting *s = first; !again && s->section; s++) {
			if (strcmp(s->section, first->section) != 0)
				continue;
			if (json)
				list_json(out, s);
			else
				list_yaml(out, s, before);
			before = s;
		}
	}
}

static int run_list(struct cli *cli, const struct parsed *args)
{
	list_all(&cli->out, opt_flag(args, "json"));
	return EXIT_OK;
}

static const struct opt list_opts[] = {
	{.name = "json", .letter = 'j', .kind = OPT_FLAG, .help = "A line of JSON a setting"},
	{.name = NULL},
};

const struct command cmd_config_list = {
	.name = "config list",
	.operands = "",
	.summary = "print every setting of a server, as a file to begin with",
	.opts = list_opts,
	.description = "Each with what it means, its name in the environment, its flag and its default.",
	.example = "sluice config list > sluice.yaml",
	.run = run_list,
};
