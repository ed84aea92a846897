/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states that a power loss could leave. The changes that are not durable at a point become slots, each with a few
 * options; a state is one option for every slot:
 *
 *   directory operation           there or not
 *   piece of a write              there or not, one slot for each aligned 512 (or 64) bytes that the write touches
 *   size of a file                one of the m + 1 sizes that m changes of it went through
 *
 * When the product of all options is small, state k is the k-th combination; otherwise it is drawn, in one of several
 * styles that are known to hurt (all or nothing, sizes without data, all but one, a prefix in time, …).
 */
#include <stdlib.h>
#include <string.h>

#include "support/crashfs_priv.h"

enum slot_kind { SLOT_DIR, SLOT_PIECE, SLOT_SIZE };

struct slot {
	enum slot_kind kind;
	size_t op;         /* SLOT_DIR, SLOT_PIECE */
	uint64_t from, to; /* SLOT_PIECE: the bytes in the file */
	uint32_t ino;      /* SLOT_SIZE */
	size_t options, choice;
};

struct slots {
	struct slot *at;
	size_t n, cap;
};

static void add_slot(struct slots *s, struct slot slot)
{
	if (s->n == s->cap) {
		s->cap = s->cap != 0 ? s->cap * 2 : 64;
		s->at = cfs_grow(s->at, s->cap * sizeof(*s->at));
	}
	s->at[s->n++] = slot;
}

static bool uncertain(const struct cfs_op *op, size_t point)
{
	return op->kind != CFS_SYNC && op->durable_at >= point;
}

static void count_resize(struct slots *s, uint32_t ino)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->at[i].kind == SLOT_SIZE && s->at[i].ino == ino) {
			s->at[i].options++;
			return;
		}
	add_slot(s, (struct slot){.kind = SLOT_SIZE, .ino = ino, .options = 2});
}

static void add_pieces(struct slots *s, const struct cfs_op *op, size_t i, size_t grain)
{
	uint64_t end = op->off + op->len;
	for (uint64_t from = op->off; from < end;) {
		uint64_t to = (from / grain + 1) * grain;
		if (to > end)
			to = end;
		add_slot(s, (struct slot){.kind = SLOT_PIECE, .op = i, .from = from, .to = to, .options = 2});
		from = to;
	}
}

static void collect(const struct crashfs *fs, size_t point, size_t grain, struct slots *s)
{
	*s = (struct slots){0};
	for (size_t i = 0; i < point; i++) {
		const struct cfs_op *op = &fs->ops[i];
		if (!uncertain(op, point))
			continue;
		if (op->kind != CFS_WRITE && op->kind != CFS_TRUNCATE)
			add_slot(s, (struct slot){.kind = SLOT_DIR, .op = i, .options = 2});
		if (op->resizes)
			count_resize(s, op->ino);
		if (op->kind == CFS_WRITE && !op->idle_zeros)
			add_pieces(s, op, i, grain);
	}
}

/* The number of combinations, or SIZE_MAX when above limit. */
static size_t combinations(const struct slots *s, size_t limit)
{
	size_t n = 1;
	for (size_t i = 0; i < s->n; i++) {
		n *= s->at[i].options;
		if (n > limit)
			return SIZE_MAX;
	}
	return n;
}

static size_t states_of(const struct crashfs *fs, size_t point, size_t grain, size_t limit)
{
	struct slots s;
	collect(fs, point, grain, &s);
	size_t n = combinations(&s, limit);
	free(s.at);
	return n < limit ? n : limit;
}

size_t crashfs_states(const struct crashfs *fs, size_t point, size_t limit)
{
	return states_of(fs, point, 512, limit) + states_of(fs, point, 64, limit);
}

static uint64_t next(uint64_t *s)
{
	uint64_t z = *s += 0x9E3779B97F4A7C15ULL;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
	return z ^ (z >> 31);
}

/* Every slot with the same odds (of 16) to be as late as it can be, else as early; sizes in between now and then. */
static void choose_odds(struct slots *s, uint64_t *rng, unsigned odds)
{
	for (size_t i = 0; i < s->n; i++) {
		struct slot *slot = &s->at[i];
		slot->choice = (next(rng) & 15) < odds ? slot->options - 1 : 0;
		if (slot->options > 2 && (next(rng) & 1) != 0)
			slot->choice = (size_t)(next(rng) % slot->options);
	}
}

static void choose_all(struct slots *s, bool pieces, bool dirs, bool sizes)
{
	for (size_t i = 0; i < s->n; i++) {
		struct slot *slot = &s->at[i];
		bool late = slot->kind == SLOT_PIECE ? pieces : slot->kind == SLOT_DIR ? dirs : sizes;
		slot->choice = late ? slot->options - 1 : 0;
	}
}

static void choose_prefix(struct slots *s, uint64_t *rng)
{
	size_t cut = (size_t)(next(rng) % (s->n + 1));
	for (size_t i = 0; i < s->n; i++)
		s->at[i].choice = i < cut || s->at[i].kind == SLOT_SIZE ? s->at[i].options - 1 : 0;
}

static void choose_sample(struct slots *s, size_t k, uint64_t *rng)
{
	size_t one = s->n != 0 ? (size_t)(next(rng) % s->n) : 0;
	switch (k < 5 ? k : 5 + next(rng) % 8) {
	case 0:
		choose_all(s, false, false, false);
		break;
	case 1:
		choose_all(s, true, true, true);
		break;
	case 2:
		choose_all(s, false, true, true);
		break;
	case 3:
		choose_all(s, true, true, false);
		break;
	case 4:
		choose_all(s, true, false, true);
		break;
	case 5: /* all but one */
	case 6: /* one only */
		choose_all(s, s->n % 2 == 0 || (next(rng) & 1), true, true);
		if (s->n != 0)
			s->at[one].choice = (size_t)(next(rng) % s->at[one].options);
		break;
	case 7:
		choose_prefix(s, rng);
		break;
	case 8:
		choose_odds(s, rng, 14);
		break;
	case 9:
		choose_odds(s, rng, 2);
		break;
	case 10: /* data at random, everything else there */
		choose_odds(s, rng, 8);
		for (size_t i = 0; i < s->n; i++)
			if (s->at[i].kind != SLOT_PIECE)
				s->at[i].choice = s->at[i].options - 1;
		break;
	default:
		choose_odds(s, rng, 8);
		break;
	}
}

static void choose_nth(struct slots *s, size_t k)
{
	for (size_t i = 0; i < s->n; i++) {
		s->at[i].choice = k % s->at[i].options;
		k /= s->at[i].options;
	}
}

/* ---- from choices to a filesystem ---- */

static size_t *size_budget(const struct crashfs *fs, const struct slots *s)
{
	size_t *budget = cfs_alloc(fs->n_inodes * sizeof(*budget));
	for (size_t i = 0; i < s->n; i++)
		if (s->at[i].kind == SLOT_SIZE)
			budget[s->at[i].ino] = s->at[i].choice;
	return budget;
}

static void apply_dir(struct crashfs *to, const struct cfs_op *op)
{
	struct cfs_inode *dir = &to->inodes[op->dir];
	if (op->kind == CFS_CREATE) {
		cfs_link(dir, op->name, op->ino);
	} else if (op->kind == CFS_UNLINK) {
		cfs_unlink(dir, op->name);
	} else {
		const struct cfs_entry *old = cfs_lookup(dir, op->name);
		if (old != NULL && old->ino == op->ino)
			cfs_unlink(dir, op->name);
		cfs_link(&to->inodes[op->dir2], op->name2, op->ino);
	}
}

/* Bytes beyond the size that the file has in this state are gone with it. */
static void apply_bytes(struct cfs_inode *node, const struct cfs_op *op, uint64_t from, uint64_t end)
{
	if (end > node->size)
		end = node->size;
	if (from < end)
		cfs_write(node, from, op->data + (from - op->off), (size_t)(end - from));
}

static void apply_file(struct crashfs *to, const struct cfs_op *op, size_t i, bool sure, size_t *budget,
		       const struct slots *s, size_t *at)
{
	struct cfs_inode *node = &to->inodes[op->ino];
	bool resize = op->resizes && (sure || budget[op->ino] > 0);
	if (op->resizes && !sure && resize)
		budget[op->ino]--;
	if (op->kind == CFS_TRUNCATE) {
		if (resize)
			cfs_resize(node, (size_t)op->off);
		return;
	}
	if (resize && op->off + op->len > node->size)
		cfs_resize(node, (size_t)op->off + op->len);
	if (sure || op->idle_zeros) {
		apply_bytes(node, op, op->off, op->off + op->len);
		return;
	}
	for (; *at < s->n; (*at)++) {
		const struct slot *slot = &s->at[*at];
		if (slot->kind != SLOT_PIECE)
			continue;
		if (slot->op != i)
			break;
		if (slot->choice != 0)
			apply_bytes(node, op, slot->from, slot->to);
	}
}

static bool dir_choice(const struct slots *s, size_t op)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->at[i].kind == SLOT_DIR && s->at[i].op == op)
			return s->at[i].choice != 0;
	return true;
}

static void rebuild(const struct crashfs *fs, size_t point, const struct slots *s, struct crashfs *to)
{
	size_t *budget = size_budget(fs, s), at = 0;
	for (size_t i = 0; i < point; i++) {
		const struct cfs_op *op = &fs->ops[i];
		bool sure = !uncertain(op, point);
		if (op->kind == CFS_SYNC)
			continue;
		if (op->kind == CFS_WRITE || op->kind == CFS_TRUNCATE)
			apply_file(to, op, i, sure, budget, s, &at);
		else if (sure || dir_choice(s, i))
			apply_dir(to, op);
	}
	free(budget);
}

static struct crashfs *start_state(const struct crashfs *fs)
{
	struct crashfs *to = crashfs_new();
	cfs_free_inodes(to->inodes, to->n_inodes);
	to->n_inodes = fs->n_inodes;
	to->inodes = cfs_alloc(to->n_inodes * sizeof(*to->inodes));
	for (size_t i = 0; i < fs->n_base; i++)
		cfs_copy_inode(&to->inodes[i], &fs->base[i]);
	for (size_t i = fs->n_base; i < fs->n_inodes; i++)
		to->inodes[i] = (struct cfs_inode){
			.is_dir = fs->inodes[i].is_dir, .mode = fs->inodes[i].mode, .mtime_ms = fs->inodes[i].mtime_ms};
	for (size_t i = 0; i < to->n_inodes; i++) {
		to->inodes[i].lock_fd = -1;
		to->inodes[i].name = cfs_strdup(fs->inodes[i].name);
	}
	to->recording = false;
	return to;
}

/* Names as this state has them. */
static void rename_inodes(struct crashfs *fs)
{
	for (size_t i = 0; i < fs->n_inodes; i++)
		for (size_t k = 0; k < fs->inodes[i].n_entries; k++) {
			struct cfs_inode *node = &fs->inodes[fs->inodes[i].entries[k].ino];
			free(node->name);
			node->name = cfs_strdup(fs->inodes[i].entries[k].name);
		}
}

static uint64_t mix(uint64_t h, const void *data, size_t n)
{
	const uint8_t *p = data;
	for (; n >= 8; p += 8, n -= 8) {
		uint64_t v;
		memcpy(&v, p, 8);
		h = (h ^ v) * 0x9FB21C651E98DF25ULL;
		h ^= h >> 29;
	}
	for (; n > 0; p++, n--)
		h = (h ^ *p) * 0x100000001B3ULL;
	return h * 0x9FB21C651E98DF25ULL + 1;
}

static uint64_t hash_tree(const struct crashfs *fs, uint32_t ino, uint64_t h)
{
	const struct cfs_inode *node = &fs->inodes[ino];
	if (!node->is_dir)
		return mix(h ^ node->size, node->data, node->size);
	for (size_t i = 0; i < node->n_entries; i++) {
		h = mix(h, node->entries[i].name, strlen(node->entries[i].name));
		h = hash_tree(fs, node->entries[i].ino, h);
	}
	return h;
}

struct crashfs *crashfs_crash(const struct crashfs *fs, size_t point, size_t k, size_t limit, uint64_t seed,
			      uint64_t *hash)
{
	size_t coarse = states_of(fs, point, 512, limit);
	size_t grain = k < coarse ? 512 : 64, nth = k < coarse ? k : k - coarse;
	uint64_t rng = seed ^ (uint64_t)point << 40 ^ (uint64_t)k << 8 ^ grain;
	struct slots s;
	collect(fs, point, grain, &s);
	if (combinations(&s, limit) <= limit)
		choose_nth(&s, nth);
	else
		choose_sample(&s, nth, &rng);
	struct crashfs *to = start_state(fs);
	rebuild(fs, point, &s, to);
	rename_inodes(to);
	free(s.at);
	if (hash != NULL)
		*hash = hash_tree(to, 0, point);
	return to;
}

/* ---- for people ---- */

static void print_op(const struct crashfs *fs, size_t i, size_t point, FILE *out)
{
	const struct cfs_op *op = &fs->ops[i];
	fprintf(out, "# %4zu ino %-3u %s", i, op->ino, uncertain(op, point) ? "? " : "  ");
	switch (op->kind) {
	case CFS_WRITE:
		fprintf(out, "write %llu+%zu%s", (unsigned long long)op->off, op->len, op->idle_zeros ? " zeros" : "");
		break;
	case CFS_TRUNCATE:
		fprintf(out, "truncate %llu", (unsigned long long)op->off);
		break;
	case CFS_CREATE:
		fprintf(out, "create %s", op->name);
		break;
	case CFS_RENAME:
		fprintf(out, "rename %s to %s", op->name, op->name2);
		break;
	case CFS_UNLINK:
		fprintf(out, "unlink %s", op->name);
		break;
	case CFS_SYNC:
		fprintf(out, "%s of %s%s", op->call, op->name, op->len == 0 ? ", which has nothing new" : "");
		break;
	}
	fputc('\n', out);
}

void crashfs_print_log(const struct crashfs *fs, size_t point, FILE *out)
{
	for (size_t i = 0; i < point && i < fs->n_ops; i++)
		print_op(fs, i, point, out);
}

static void print_node(const struct crashfs *fs, uint32_t ino, int depth, FILE *out)
{
	const struct cfs_inode *node = &fs->inodes[ino];
	for (size_t i = 0; i < node->n_entries; i++) {
		const struct cfs_inode *child = &fs->inodes[node->entries[i].ino];
		fprintf(out, "# %*s%s", depth * 2, "", node->entries[i].name);
		fprintf(out, child->is_dir ? "/\n" : " %zu bytes, ino %u\n", child->size, node->entries[i].ino);
		print_node(fs, node->entries[i].ino, depth + 1, out);
	}
}

void crashfs_print_tree(const struct crashfs *fs, FILE *out)
{
	print_node(fs, 0, 0, out);
}
