/* The user's masks: coordinates that stand still from the freeze on, whatever their gradients. */
#include "late.h"

#include <string.h>

#include "../src/base/hash.h"
#include "freeze.h"

void lnt_optim_note_mask(lnt_optim_t *optim, uint32_t number)
{
    lnt_optim_tensor_t *tensor = &optim->tensors[number];
    const uint8_t *masked = lnt_optim_view(optim, "masked", number);
    uint64_t hash = 0;

    if (masked != NULL && memchr(masked, 1, tensor->count) != NULL)
        hash = lnt_hash64(lnt_hash64_u64(lnt_hash64_text(0, "mask"), number), masked, tensor->count);
    optim->mask_hash ^= tensor->mask_hash ^ hash;
    tensor->mask_hash = hash;
}

/* Before the freeze a mask is only kept. After it the masked are dead, in the lane too; who is unmasked is dead until a
 * gradient comes. */
static void retire_masked(lnt_optim_t *optim, uint32_t number)
{
    const lnt_optim_tensor_t *tensor = &optim->tensors[number];
    uint8_t *dead = lnt_freeze_dead(optim);
    const uint8_t *masked = lnt_freeze_masked(optim);
    float *m = lnt_optim_f32(optim, LNT_ADAM_M), *v = lnt_optim_f32(optim, LNT_ADAM_V);

    for (uint64_t i = tensor->base; i < tensor->base + tensor->count; i++) {
        dead[i] = (uint8_t)((dead[i] != 0 && !lnt_freeze_in_lane(optim, number)) || masked[i] != 0);
        if (masked[i] != 0) m[i] = v[i] = 0;
    }
}

lnt_status_t lnt_optim_set_mask(lnt_optim_t *optim, uint32_t tensor, const uint8_t *mask)
{
    const lnt_optim_tensor_t *of;
    uint8_t *masked;

    LNT_CHECK_ARG(optim != NULL && tensor < optim->n_tensors);
    if (optim->row->set_mask != NULL) {
        LNT_TRY(lnt_optim_check_idle(optim, "lnt_optim_set_mask"));
        LNT_TRY(optim->row->set_mask(optim, tensor, mask));
        lnt_optim_note_mask(optim, tensor);
        return LNT_OK;
    }
    if (optim->row->freezing == NULL) {
        return lnt_error(LNT_ERR_UNSUPPORTED, "leave masks to algorithms with a compressed phase",
                         "algorithm \"%s\" has no masks", optim->row->name);
    }
    LNT_TRY(lnt_optim_check_idle(optim, "lnt_optim_set_mask"));
    of = &optim->tensors[tensor];
    masked = lnt_freeze_masked(optim) + of->base;
    for (uint64_t i = 0; i < of->count; i++)
        masked[i] = mask != NULL && mask[i] == 0;
    lnt_optim_note_mask(optim, tensor);
    if (!optim->frozen) return LNT_OK;
    if (optim->row->remask != NULL) return optim->row->remask(optim, tensor);
    retire_masked(optim, tensor);
    LNT_TRY(lnt_freeze_note_dead(optim, tensor));
    lnt_late_recount(optim);
    return lnt_late_apply(optim);
}
