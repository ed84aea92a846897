/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog's tables and statements, once for both databases. Who includes this has said what differs:
 *
 *	CAT_NO_ROWID      after a table's columns
 *	CAT_FOR_UPDATE    after a SELECT whose row no other transaction may change until the end of the transaction
 *	CAT_NOW_MS        the database's clock, in Unix milliseconds
 *	CAT_EXPIRY(ttl)   when a lease that is taken now ends; one that ends with its process has ended at 0 for others
 *
 * Parameters appear in the order of their numbers: SQLite numbers them so.
 */
#ifndef SL_PIPELINE_AUDIT_CATALOG_SQL_H
#define SL_PIPELINE_AUDIT_CATALOG_SQL_H

#define CAT_SCHEMA_VERSION 1

/* A step from version n to n + 1 is never changed after a release; a new one is added. */
#define CAT_TO_1                                                                                                       \
	"CREATE TABLE sluice_dataset(name TEXT NOT NULL PRIMARY KEY, partition_size BIGINT NOT NULL DEFAULT 0,"        \
	" sequence_column TEXT NOT NULL DEFAULT '', schema_text TEXT NOT NULL DEFAULT '',"                             \
	" schema_sha256 TEXT NOT NULL DEFAULT '', events BIGINT NOT NULL DEFAULT 0,"                                   \
	" first_sequence BIGINT NOT NULL DEFAULT 0, checkpoint BIGINT NOT NULL DEFAULT 0,"                             \
	" row_count BIGINT NOT NULL DEFAULT 0, bad_row_count BIGINT NOT NULL DEFAULT 0,"                               \
	" byte_count BIGINT NOT NULL DEFAULT 0, head_hash TEXT NOT NULL DEFAULT '',"                                   \
	" delivered_files BIGINT NOT NULL DEFAULT 0, delivered_endpoint BIGINT NOT NULL DEFAULT 0,"                    \
	" fence BIGINT NOT NULL DEFAULT 0, holder TEXT, lease_until_ms BIGINT NOT NULL DEFAULT 0)" CAT_NO_ROWID ";"    \
	"CREATE TABLE sluice_partition(dataset TEXT NOT NULL, first_sequence BIGINT NOT NULL,"                         \
	" last_sequence BIGINT NOT NULL, type TEXT NOT NULL, row_count BIGINT NOT NULL, bad_row_count BIGINT NOT "     \
	"NULL,"                                                                                                        \
	" hole_count BIGINT NOT NULL, holes TEXT NOT NULL, committed_ms BIGINT NOT NULL,"                              \
	" byte_count BIGINT NOT NULL, sha256 TEXT NOT NULL, path TEXT NOT NULL, event BIGINT NOT NULL,"                \
	" PRIMARY KEY(dataset,first_sequence,event))" CAT_NO_ROWID ";"                                                 \
	"CREATE TABLE sluice_audit_event(dataset TEXT NOT NULL, number BIGINT NOT NULL, id TEXT NOT NULL,"             \
	" event TEXT NOT NULL, PRIMARY KEY(dataset,number))" CAT_NO_ROWID ";"

#define CAT_DATASET_COLUMNS                                                                                            \
	"name,partition_size,sequence_column,schema_text,schema_sha256,events,first_sequence,checkpoint,row_count,"    \
	"bad_row_count,byte_count,head_hash,delivered_files,delivered_endpoint,fence,holder"
#define CAT_PARTITION_COLUMNS                                                                                          \
	"first_sequence,last_sequence,type,row_count,bad_row_count,byte_count,sha256,path,event,hole_count,holes"

/* X(name, text) */
#define CAT_STATEMENTS(X)                                                                                                      \
	X(DATASET_MAKE, "INSERT INTO sluice_dataset(name) VALUES($1) ON CONFLICT(name) DO NOTHING")                            \
	X(DATASET_GET, "SELECT " CAT_DATASET_COLUMNS " FROM sluice_dataset WHERE name=$1")                                     \
	X(DATASET_LIST, "SELECT " CAT_DATASET_COLUMNS " FROM sluice_dataset WHERE name>$1 AND partition_size>0"                \
			" ORDER BY name LIMIT $2")                                                                             \
	/* The fence is in the row that is locked here, so no other process can take the lease before the transaction ends. */ \
	X(DATASET_LOCK,                                                                                                        \
	  "SELECT " CAT_DATASET_COLUMNS " FROM sluice_dataset WHERE name=$1 AND fence=$2" CAT_FOR_UPDATE)                      \
	X(DATASET_DEFINE, "UPDATE sluice_dataset SET partition_size=$1,sequence_column=$2,schema_text=$3,"                     \
			  "schema_sha256=$4 WHERE name=$5 AND fence=$6 AND events=0")                                          \
	X(DATASET_ADVANCE,                                                                                                     \
	  "UPDATE sluice_dataset SET events=$1,first_sequence=$2,checkpoint=$3,head_hash=$4,"                                  \
	  "row_count=row_count+$5,bad_row_count=bad_row_count+$6,byte_count=byte_count+$7 WHERE name=$8 AND fence=$9")         \
	X(LEASE_TAKE,                                                                                                          \
	  "UPDATE sluice_dataset SET holder=$1,lease_until_ms=" CAT_EXPIRY(                                                    \
		  "$2") ",fence=fence+1"                                                                                       \
			" WHERE name=$3 AND (holder IS NULL OR lease_until_ms<=" CAT_NOW_MS ") RETURNING fence")               \
	X(LEASE_RENEW, "UPDATE sluice_dataset SET lease_until_ms=" CAT_EXPIRY("$1") " WHERE name=$2 AND fence=$3")             \
	X(LEASE_DROP, "UPDATE sluice_dataset SET holder=NULL,lease_until_ms=0 WHERE name=$1 AND fence=$2")                     \
	X(PARTITION_AT, "SELECT " CAT_PARTITION_COLUMNS " FROM sluice_partition WHERE dataset=$1"                              \
			" AND first_sequence<=$2 AND type<>'late' ORDER BY first_sequence DESC LIMIT 1")                       \
	X(LATE_AT, "SELECT " CAT_PARTITION_COLUMNS " FROM sluice_partition WHERE dataset=$1"                                   \
		   " AND first_sequence<=$2 AND type='late' ORDER BY first_sequence DESC LIMIT 1")                             \
	X(PARTITION_LIST, "SELECT " CAT_PARTITION_COLUMNS " FROM sluice_partition WHERE dataset=$1"                            \
			  " AND first_sequence>=$2 AND (first_sequence>$2 OR event>$3)"                                        \
			  " ORDER BY first_sequence,event LIMIT $4")                                                           \
	X(HOLE_LIST, "SELECT " CAT_PARTITION_COLUMNS " FROM sluice_partition WHERE dataset=$1"                                 \
		     " AND first_sequence>=$2 AND hole_count>0 AND committed_ms>=$3 ORDER BY first_sequence LIMIT $4")         \
	X(PARTITION_PUT, "INSERT INTO sluice_partition(dataset," CAT_PARTITION_COLUMNS ",committed_ms)"                        \
			 " VALUES($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13)")                                                \
	X(EVENT_LIST, "SELECT number,event,id FROM sluice_audit_event WHERE dataset=$1 AND number>$2"                          \
		      " ORDER BY number LIMIT $3")                                                                             \
	X(EVENT_PUT, "INSERT INTO sluice_audit_event(dataset,number,id,event) VALUES($1,$2,$3,$4)")                            \
	X(MARK_FILES, "UPDATE sluice_dataset SET delivered_files=$1 WHERE name=$2 AND fence=$3")                               \
	X(MARK_ENDPOINT, "UPDATE sluice_dataset SET delivered_endpoint=$1 WHERE name=$2 AND fence=$3")

#endif
