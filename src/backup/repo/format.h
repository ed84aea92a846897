/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The repository's format in numbers; docs/formats/backup.md has it byte by byte.
 *
 *   config                      JSON: version, id, encrypted, chunker sizes; the last member "check" is the SHA-256
 *   keys/<id>                   JSON: Argon2id parameters, salt, the wrapped master key
 *   copies/config               the same bytes as config, for when it is damaged (backup/repo/twins.h)
 *   copies/keys/<id>            the same bytes as keys/<id>
 *   packs/<hh>/<sha256>         blocks in frames, and their directory; named by the SHA-256 of the file
 *   index/<sha256>              which block is where, sorted by block id; named by the SHA-256 of the file
 *   sessions/<id>               a create that runs: its heartbeat is the object's time
 *   snapshots/<id>              published by the rename of its session
 *   marks/<id>                  packs that a prune wants to delete
 *   damaged/<name>              what repair moved there
 *
 * All integers are little-endian. "Sealed" is what sl__bk_seal makes: in an encrypted repository nonce, ciphertext and
 * tag of XChaCha20-Poly1305, in a plain one the CRC-64/NVME of the associated data and the bytes, then the bytes.
 *
 * Invariants, cited by asserts and tests:
 *  F1  A block's id is the SHA-256 of its bytes, or HMAC-SHA-256 with the id key in an encrypted repository.
 *  F2  An object under packs/ or index/ never changes; its name is the SHA-256 of all its bytes.
 *  F3  A snapshot is published only when every block it needs is in a pack that a sync has made durable, and all those
 *      packs are in a durable index.
 *  F4  A pack is deleted only when a mark named it, an earlier run made the mark, every live session has seen the mark,
 *      and no snapshot needs a block that is in no other pack that stays. A pack that a mark has named never comes back
 *      into use: what is needed of it is copied, and a mark is removed only after all its packs.
 *  F5  A create takes no block for present that is only in packs of marks it has seen. It loads the marks first, lists
 *      the packs then, and a pack that is not listed does not count.
 *  F6  No name of a pack is ever given twice: 16 random bytes are in each. (Else a create could make anew, byte for
 *      byte, a pack that a prune is about to delete.)
 *  F7  Directly before it publishes, a create checks for marks that came since it loaded them. What its snapshot has
 *      only in packs that these name it stores again; when it is gone, it publishes nothing. F4 makes this needless;
 *      it is there for a prune that does not keep F4.
 */
#ifndef SL_BACKUP_FORMAT_H
#define SL_BACKUP_FORMAT_H

#include "base/env.h"

#define BK_VERSION 1

#define BK_ID_BYTES 32u   /* of a block, a pack, an index */
#define BK_HEX_BYTES 65u  /* of these as text, with the NUL */
#define BK_NAME_BYTES 16u /* random ids: repository, snapshot, session, mark, key */
#define BK_NAME_HEX 33u   /* as text, with the NUL */

/* Chunking; written into the config, so that a later version may choose others for new repositories. */
#define BK_CHUNK_MIN (128u << 10)
#define BK_CHUNK_AVG (512u << 10)
#define BK_CHUNK_MAX (2u << 20)

/* Blocks below this are gathered into frames of up to BK_FRAME_BYTES raw bytes; others are their own frame. */
#define BK_SOLID_BELOW (512u << 10)
#define BK_FRAME_BYTES (2u << 20)
#define BK_FRAME_RAW_MAX BK_CHUNK_MAX /* no frame decompresses to more: a bound on hostile ones */
#define BK_FRAME_BLOCKS_MAX 16384u

#define BK_LEVEL_DEFAULT 0 /* of compression, see pack.c; readers need not know it */

#define BK_PACK_MAGIC "SLPACK01"
#define BK_PACK_END "SLPKEND1"
#define BK_PACK_HEADER 40u /* magic, repository id, 16 random bytes (F6) */
#define BK_PACK_TAIL 24u   /* u32 length of the sealed directory, u32 0, u64 CRC-64/NVME of it, end magic */
#define BK_PACK_BYTES_MAX (128u << 20)

#define BK_INDEX_MAGIC "SLINDX01"
#define BK_INDEX_ENTRY                                                                                                 \
	56u                    /* id[32], u32 pack, u32 frame offset, u32 frame stored, u32 frame raw (top bit: zstd), \
				  u32 offset in the frame, u32 length */
#define BK_INDEX_SEGMENT 1024u /* entries of a segment; each is sealed by itself */

#define BK_LIST_REFS 4096u /* a file of more blocks has them in list blocks of this many references */
#define BK_LIST_BLOCKS_MAX 65536u
#define BK_PATH_MAX 65536u          /* bytes of a path in a snapshot */
#define BK_XATTRS_MAX (1u << 20)    /* bytes of all attributes of an entry: an entry fits into a block */
#define BK_SNAPSHOT_MAX (64u << 20) /* bytes of a snapshot object */

/* What is sealed, as the first byte of the associated data; the repository's id follows, then what the caller gives. */
enum bk_kind {
	BK_KIND_FRAME = 1,
	BK_KIND_DIRECTORY = 2,
	BK_KIND_INDEX_HEAD = 3,
	BK_KIND_INDEX_SEGMENT = 4,
	BK_KIND_SNAPSHOT = 5,
	BK_KIND_SESSION = 6,
	BK_KIND_MARK = 7,
	BK_KIND_KEY = 8
};

struct bk_id {
	uint8_t b[BK_ID_BYTES];
};

/* The order of all sorted ids; for qsort and bsearch too. */
static inline int sl__bk_compare_ids(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct bk_id));
}

/* Of blocks, in bytes. */
struct bk_chunk_sizes {
	uint32_t min, avg, max;
};

#endif
