/* SPDX-License-Identifier: Apache-2.0 */
/* Export numbered rows, keep a signed head of the audit chain, and let verification find the one byte that changed. */
#include <inttypes.h>
#include <sluice/audit.h>
#include <sluice/export.h>
#include <stdio.h>

#define CHANGED "lake/days/partition-00000000000000000001/part-00000000000000000010-00000000000000000019.parquet"

static int write_rows(void)
{
	FILE *f = fopen("days.csv", "w");

	if (f == NULL)
		return -1;
	fputs("day,name\n", f);
	for (int i = 1; i <= 25; i++)
		fprintf(f, "%d,day number %d\n", i, i);
	return fclose(f);
}

static int export_rows(struct sl_err *err)
{
	struct sl_export_opts opts = {SL_EXPORT_OPTS_INIT, .from = "days.csv", .to = "lake", .dataset = "days",
				      .partition_size = 10};
	sl_export *e = NULL;
	int rc = sl_export_new(&e, &opts, err);

	rc = rc != 0 ? rc : sl_export_run(e, NULL, err);
	sl_export_free(e);
	return rc;
}

/* The head belongs on another machine than the export; here it is a file beside it. */
static int keep_head(struct sl_err *err)
{
	struct sl_audit_head head;
	uint8_t public_key[SL_AUDIT_PUBLIC_KEY_BYTES];
	char text[SL_AUDIT_HEAD_BYTES];
	size_t len;
	int rc = sl_audit_keygen("audit.key", NULL, public_key, err);

	rc = rc != 0 ? rc : sl_audit_head_read("lake", "days", NULL, &head, err);
	rc = rc != 0 ? rc : sl_audit_head_sign(&head, "audit.key", NULL, err);
	rc = rc != 0 ? rc : sl_audit_head_format(&head, text, &len, err);
	FILE *f = rc == 0 ? fopen("days.head", "w") : NULL;
	if (f != NULL && fwrite(text, 1, len, f) == len && fclose(f) == 0)
		printf("kept a head of %" PRIu64 " events\n", head.events);
	return rc;
}

static int print(const struct sl_audit_finding *f, void *ctx)
{
	(void)ctx;
	printf("event %" PRIu64 ": %s\n", f->event, f->path);
	return 0;
}

static int verify(struct sl_err *err)
{
	struct sl_audit_verify_opts opts = {SL_AUDIT_VERIFY_OPTS_INIT, .all = SL_ON, .checkpoint = "days.head",
					    .public_key = "audit.key.pub", .on_finding = print};
	struct sl_audit_result r = {.struct_size = sizeof(r)};
	int rc = sl_audit_verify("lake", "days", &opts, &r, err);

	if (rc == 0)
		printf("%" PRIu64 " rows in %" PRIu64 " partitions, %" PRIu64 " findings\n", r.rows, r.partitions,
		       r.findings);
	return rc;
}

static int change_a_byte(void)
{
	FILE *f = fopen(CHANGED, "r+");
	int byte = f != NULL && fseek(f, 50, SEEK_SET) == 0 ? fgetc(f) : EOF;

	if (byte == EOF || fseek(f, 50, SEEK_SET) != 0 || fputc(byte ^ 1, f) == EOF)
		return -1;
	return fclose(f);
}

int main(void)
{
	struct sl_err err = SL_ERR_INIT;

	if (write_rows() != 0 || export_rows(&err) != 0 || keep_head(&err) != 0 || verify(&err) != 0 ||
	    change_a_byte() != 0 || verify(&err) != 0) {
		fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	return 0;
}
