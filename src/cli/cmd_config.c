/* SPDX-License-Identifier: Apache-2.0 */
/* sluice config: check a configuration file, and list every setting that there is. */
#include "commands.h"
#include "configfile.h"

#include <string.h>

static int config_check_run(struct cli *cli, const struct parsed *args)
{
	const char *path = args->operands[0];
	struct srv_config config;
	int rc = configfile_read(cli, path, false, &config);

	srv_config_fini(&config);
	if (rc == 0)
		out_printf(&cli->out, "%s: good\n", path);
	return rc;
}

const struct command cmd_config_check = {
	.name = "config check",
	.operands = "FILE",
	.summary = "check a configuration file and name every mistake with its place",
	.description = "Prints every problem as FILE:LINE:COLUMN, and suggests the nearest known name for an unknown "
		       "one. The environment is not read. Nothing is started.",
	.example = "sluice config check sluice.yaml\n"
		   "sluice config check /etc/sluice/sluice.yaml",
	.run = config_check_run,
};

static const char *const kind_names[] = {
	[SRV_TEXT] = "text",           [SRV_PATH] = "path",     [SRV_NUMBER] = "number",
	[SRV_MILLIS] = "milliseconds", [SRV_BYTES] = "bytes",   [SRV_FACTOR] = "number",
	[SRV_SWITCH] = "switch",       [SRV_CHOICE] = "choice", [SRV_LIST] = "list"};

static void print_setting_json(struct out *out, const struct srv_setting *s, const char *name, const char *flag,
			       const char *env)
{
	char expects[160];

	out_json_line(out, json_pack("{s:s, s:s, s:s, s:s?, s:s?, s:s?, s:s, s:s}", "section", s->section, "name", name,
				     "kind", kind_names[s->kind], "default", s->def, "flag", flag, "env", env,
				     "expects", srv_setting_expects(s, expects, sizeof(expects)), "help", s->help));
}

/* Those of a type, for TYPE. */
static void list_types(struct out *out, bool json)
{
	bool retry = false;

	if (!json)
		out_printf(out, "\ntypes:\n  # Settings of one type; for the others, those of jobs.\n"
				"  # --set types.TYPE.SETTING=VALUE\n  # TYPE:\n");
	for (const struct srv_setting *s = srv_type_settings; s->section != NULL; s++) {
		bool inside = strncmp(s->name, "retry.", 6) == 0;
		char name[64];

		(void)snprintf(name, sizeof(name), "TYPE.%s", s->name);
		if (json) {
			print_setting_json(out, s, name, NULL, NULL);
			continue;
		}
		if (inside && !retry)
			out_printf(out, "  #   retry:\n");
		retry = inside;
		out_printf(out, "  #   %s# %s\n  #   %s%s:\n", inside ? "  " : "", s->help, inside ? "  " : "",
			   inside ? s->name + 6 : s->name);
	}
}

/* Settings of one section are listed together, in the order of the sections' first ones. As YAML: a file in which every
 * default is a comment, as a start for one's own. */
static int config_list_run(struct cli *cli, const struct parsed *args)
{
	const struct srv_setting *before = NULL;
	struct out *out = &cli->out;
	char env[SRV_ENV_BYTES];

	for (const struct srv_setting *first = srv_settings; first->section; first++) {
		bool again = false;

		/* A section that was begun before is listed already. */
		for (const struct srv_setting *s = srv_settings; s < first; s++)
			again |= strcmp(s->section, first->section) == 0;
		/* All settings of this section, wherever the table has them. */
		for (const struct srv_setting *s = first; !again && s->section != NULL; s++) {
			if (strcmp(s->section, first->section) != 0)
				continue;
			if (opt_flag(args, "json")) {
				print_setting_json(out, s, s->name, s->flag, srv_setting_env(s, env));
				continue;
			}
			if (before == NULL || strcmp(before->section, s->section) != 0)
				out_printf(out, "%s%s:\n", before != NULL ? "\n" : "", s->section);
			out_printf(out, "  # %s\n  # %s", s->help, srv_setting_env(s, env));
			if (s->flag != NULL)
				out_printf(out, ", --%s", s->flag);
			out_printf(out, "\n  # %s: %s\n", s->name,
				   s->def != NULL        ? s->def
				   : s->kind == SRV_LIST ? "[]"
							 : "");
			before = s;
		}
		/* Next to the section that holds for all types. */
		if (!again && strcmp(first->section, "jobs") == 0)
			list_types(out, opt_flag(args, "json"));
	}
	return EXIT_OK;
}

static const struct opt list_opts[] = {
	OPT_JSON("Print one JSON object per setting"),
	{.name = NULL},
};

const struct command cmd_config_list = {
	.name = "config list",
	.operands = "",
	.summary = "print every setting of a server, as a file to start from",
	.opts = list_opts,
	.description = "Prints each setting with its description, environment variable, flag and default.",
	.example = "sluice config list\n"
		   "sluice config list > sluice.yaml",
	.run = config_list_run,
};
