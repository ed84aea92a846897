/* SPDX-License-Identifier: Apache-2.0 */
/* Records that the receiver refused, as dead letters. Payloads of an encrypted log stay sealed in them. */
#include "wal/sender.h"

#include <stdio.h>

#include <sluice/dead_letter.h>

#define SOURCE_PREFIX "wal:"
#define SOURCE_PREFIX_LEN (sizeof(SOURCE_PREFIX) - 1)

/* ---- putting ---- */

int sl__wal_put_letter(sl_wal *w, const struct wal_stored *stored, const struct sender_refusal *why, struct sl_err *err)
{
	char source[256];
	(void)snprintf(source, sizeof(source), SOURCE_PREFIX "%s", w->id);
	bool sealed = stored->version == 2;
	struct sl_dlq_letter letter = {SL_DLQ_LETTER_INIT,
				       .source = source,
				       .position = stored->record.sequence,
				       .error = why->why.msg,
				       .code = SL_EREFUSED,
				       .error_class = SL_CLASS_POISON,
				       .attempts = why->attempts,
				       .first_failed_ms = why->first_ms,
				       .last_failed_ms = why->last_ms,
				       .target = w->path,
				       .item = stored->record.payload,
				       .item_len = stored->record.payload_len,
				       .encoding = sealed ? SL_DLQ_SEALED : SL_DLQ_PLAIN};
	/* The item of a sealed record: a header and the record as it was stored. */
	uint8_t *item = NULL;
	if (sealed) {
		letter.item_len = WAL_HEADER_BYTES + stored->record.total;
		letter.item = item = sl__alloc(&w->env, letter.item_len);
	}
	if (item != NULL) {
		sl__wal_header_encode(item, (struct wal_header){.version = 2, .incarnation = w->header.incarnation});
		memcpy(item + WAL_HEADER_BYTES, stored->bytes, stored->record.total);
	}
	char *dir = w->opts.dead_letter_dir != NULL ? sl__strdup(&w->env, w->opts.dead_letter_dir)
						    : sl__asprintf(&w->env, "%s/%s.dead", w->dir, w->id);
	sl_dlq *dlq = NULL;
	int rc;
	if (dir == NULL || (sealed && item == NULL))
		rc = sl_err_set(err, SL_ENOMEM, "park a record of %s: out of memory", w->path);
	else /* Open only while it is needed: a person may need the lock to redrive dead letters. */
		rc = sl_dlq_open(&dlq, dir, &(struct sl_dlq_opts){SL_DLQ_OPTS_INIT, .env = &w->env}, err);
	if (rc == 0) {
		rc = sl_dlq_put(dlq, &letter, NULL, err);
		sl_dlq_close(dlq);
	}
	sl__free(&w->env, item);
	sl__free(&w->env, dir);
	return rc;
}

/* ---- opening ---- */

int sl_wal_open_letter(const struct sl_dlq_letter *letter, const char *key_file, const struct sl_env *env, void *out,
		       size_t *len, struct sl_err *err)
{
	if (letter->encoding == SL_DLQ_PLAIN) {
		if (letter->item_len > 0)
			memcpy(out, letter->item, letter->item_len);
		*len = letter->item_len;
		return 0;
	}
	/* The item is a header and the record as it was stored. */
	struct wal_header header;
	struct wal_record record;
	const uint8_t *p = letter->item;
	bool good = letter->source != NULL && strncmp(letter->source, SOURCE_PREFIX, SOURCE_PREFIX_LEN) == 0 &&
		    sl__wal_id_valid(letter->source + SOURCE_PREFIX_LEN) && p != NULL &&
		    letter->item_len >= WAL_HEADER_BYTES + WAL_FRAME_BYTES + WAL_SEAL_BYTES;
	if (good) {
		size_t total = letter->item_len - WAL_HEADER_BYTES;
		good = sl__wal_header_decode(p, &header) == WAL_HEADER_OK && header.version == 2 &&
		       sl__wal_total(p + WAL_HEADER_BYTES, total) == total &&
		       sl__wal_check(p + WAL_HEADER_BYTES, (uint32_t)total, &record, NULL) == WAL_VALID &&
		       record.status == SL_WAL_PENDING && record.sequence == letter->position &&
		       record.payload_len >= WAL_SEAL_BYTES;
	}
	if (!good)
		return sl_err_set(err, SL_EDATA,
				  "dead letter %llu is marked as sealed, but its item is not a sealed record of %.64s",
				  (unsigned long long)letter->id, letter->source != NULL ? letter->source : "a log");
	const char *stream = letter->source + SOURCE_PREFIX_LEN;
	if (key_file == NULL)
		return sl_err_set(
			err, SL_EKEY,
			"dead letter %llu is sealed; give the key file of the log %.64s (key_file, --key-file)",
			(unsigned long long)letter->id, stream);
	struct sl_env own;
	struct wal_key *key = NULL;
	int rc = sl__env_init(&own, env, err);
	if (rc == 0)
		rc = sl__wal_key_load(&key, &own, key_file, err);
	if (rc != 0)
		return rc;
	struct wal_seal_ctx at = {stream, header.incarnation, record.sequence, record.timestamp_ms};
	rc = sl__wal_open_payload(key, &at, out, record.payload, record.payload_len);
	sl__wal_key_free(key);
	if (rc != 0)
		return sl_err_set(err, SL_EKEY,
				  "dead letter %llu cannot be decrypted: wrong key, or it was tampered with",
				  (unsigned long long)letter->id);
	*len = record.payload_len - WAL_SEAL_BYTES;
	return 0;
}
