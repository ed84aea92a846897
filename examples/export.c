/* SPDX-License-Identifier: Apache-2.0 */
/* A file of numbered rows becomes Parquet partitions with a catalog and an audit chain; the second run finds nothing
 * new, and the chain proves that nothing is missing or changed. */
#include <inttypes.h>
#include <sluice/audit.h>
#include <sluice/export.h>
#include <stdio.h>

static int write_ledgers(void)
{
	FILE *file = fopen("ledgers.csv", "w");
	if (file == NULL)
		return -1;
	fputs("sequence,fee\n", file);
	for (int i = 1; i <= 25; i++)
		fprintf(file, "%d,%d\n", i, 100 * i);
	return fclose(file);
}

static int export(struct sl_err *err)
{
	const struct sl_export_opts opts = {SL_EXPORT_OPTS_INIT,  .from = "ledgers.csv",  .to = "lake",
					    .dataset = "ledgers", .sequence = "sequence", .partition_size = 10};
	struct sl_export_result result = {.struct_size = sizeof result};
	sl_export *e = NULL;
	int rc = sl_export_new(&e, &opts, err);
	if (rc == 0)
		rc = sl_export_run(e, &result, err); /* everything that result tells is durable */
	sl_export_free(e);
	printf("%" PRIu64 " rows in %" PRIu64 " partitions; checkpoint %" PRIu64 "\n", result.rows, result.partitions,
	       result.checkpoint);
	return rc;
}

int main(void)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_audit_result found = {.struct_size = sizeof found};
	if (write_ledgers() != 0 || export(&err) != 0 || export(&err) != 0 ||
	    sl_audit_verify("lake", "ledgers", NULL, &found, &err) != 0) {
		fprintf(stderr, "export: %s\n", err.msg);
		return 1;
	}
	printf("%" PRIu64 " events, %" PRIu64 " rows, %" PRIu64 " faults\n", found.events, found.rows, found.findings);
	return found.findings != 0;
}
