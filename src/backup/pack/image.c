/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of images. A head lies right before the bytes, in the room that aligning them leaves anyway:
 *
 *   memory … | head | bytes, at a multiple of BK_IMAGE_ALIGN
 */
#include "backup/pack/pack.h"

#define SPARE_MAX 2u /* so many wait to be used again; a backlog of more is given back */

struct bk_image_head {
	void *memory; /* as it was allocated */
	size_t cap;   /* of the bytes */
	struct bk_image_head *next;
};

static struct bk_image_head *head_of(uint8_t *bytes)
{
	return (struct bk_image_head *)(void *)bytes - 1;
}

void sl__bk_images_init(struct bk_images *images)
{
	sl__mutex_init(&images->mu);
	images->spare = NULL;
	images->n = 0;
}

void sl__bk_images_fini(struct bk_images *images, const struct sl_env *env)
{
	while (images->spare != NULL) {
		struct bk_image_head *head = images->spare;
		images->spare = head->next;
		sl__free(env, head->memory);
	}
	sl__mutex_fini(&images->mu);
}

static struct bk_image_head *take_spare(struct bk_images *images, size_t cap)
{
	sl__lock(&images->mu);
	struct bk_image_head *head = images->spare;
	if (head != NULL && head->cap >= cap) {
		images->spare = head->next;
		images->n--;
	} else {
		head = NULL;
	}
	sl__unlock(&images->mu);
	return head;
}

uint8_t *sl__bk_image_alloc(const struct sl_env *env, struct bk_images *images, size_t cap)
{
	struct bk_image_head *spare = images != NULL ? take_spare(images, cap) : NULL;
	if (spare != NULL)
		return (uint8_t *)(spare + 1);
	uint8_t *memory = sl__alloc(env, sizeof(struct bk_image_head) + BK_IMAGE_ALIGN + cap);
	if (memory == NULL)
		return NULL;
	uint8_t *bytes = memory + sizeof(struct bk_image_head);
	bytes += (BK_IMAGE_ALIGN - (uintptr_t)bytes % BK_IMAGE_ALIGN) % BK_IMAGE_ALIGN;
	*head_of(bytes) = (struct bk_image_head){.memory = memory, .cap = cap};
	return bytes;
}

void sl__bk_image_free(const struct sl_env *env, struct bk_images *images, uint8_t *bytes)
{
	if (bytes == NULL)
		return;
	struct bk_image_head *head = head_of(bytes);
	bool kept = false;
	if (images != NULL) {
		sl__lock(&images->mu);
		kept = images->n < SPARE_MAX;
		if (kept) {
			head->next = images->spare;
			images->spare = head;
			images->n++;
		}
		sl__unlock(&images->mu);
	}
	if (!kept)
		sl__free(env, head->memory);
}
