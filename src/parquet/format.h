/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of the Parquet format that we use, as parquet.thrift gives them. docs/formats/parquet.md explains. */
#ifndef SL_PARQUET_FORMAT_H
#define SL_PARQUET_FORMAT_H

#define PQ_MAGIC "PAR1"
#define PQ_MAGIC_BYTES 4
#define PQ_TAIL_BYTES 8 /* the footer's length and the magic */

enum pq_physical {
	PQ_BOOLEAN = 0,
	PQ_INT32 = 1,
	PQ_INT64 = 2,
	PQ_INT96 = 3,
	PQ_FLOAT = 4,
	PQ_DOUBLE = 5,
	PQ_BYTE_ARRAY = 6,
	PQ_FIXED = 7
};

enum pq_encoding {
	PQ_PLAIN = 0,
	PQ_PLAIN_DICTIONARY = 2, /* RLE_DICTIONARY as older files call it */
	PQ_RLE = 3,
	PQ_DELTA_BINARY_PACKED = 5,
	PQ_DELTA_LENGTH_BYTE_ARRAY = 6,
	PQ_RLE_DICTIONARY = 8
};

enum pq_page { PQ_DATA_PAGE = 0, PQ_INDEX_PAGE = 1, PQ_DICTIONARY_PAGE = 2, PQ_DATA_PAGE_V2 = 3 };
enum pq_codec { PQ_UNCOMPRESSED = 0, PQ_ZSTD = 6 };

/* converted_type: what readers that do not know logicalType go by. */
enum pq_converted {
	PQ_CONV_NONE = -1,
	PQ_CONV_UTF8 = 0,
	PQ_CONV_DECIMAL = 5,
	PQ_CONV_DATE = 6,
	PQ_CONV_TIMESTAMP_MILLIS = 9,
	PQ_CONV_TIMESTAMP_MICROS = 10,
	PQ_CONV_INT_32 = 17,
	PQ_CONV_INT_64 = 18
};

/* Members of the LogicalType union. */
enum pq_logical {
	PQ_LOGICAL_NONE = 0,
	PQ_LOGICAL_STRING = 1,
	PQ_LOGICAL_DECIMAL = 5,
	PQ_LOGICAL_DATE = 6,
	PQ_LOGICAL_TIMESTAMP = 8,
	PQ_LOGICAL_INTEGER = 10
};

/* Types of Thrift's compact protocol. */
enum thrift_type {
	THRIFT_STOP = 0,
	THRIFT_TRUE = 1,
	THRIFT_FALSE = 2,
	THRIFT_BYTE = 3,
	THRIFT_I16 = 4,
	THRIFT_I32 = 5,
	THRIFT_I64 = 6,
	THRIFT_DOUBLE = 7,
	THRIFT_BINARY = 8,
	THRIFT_LIST = 9,
	THRIFT_SET = 10,
	THRIFT_MAP = 11,
	THRIFT_STRUCT = 12
};

#endif
