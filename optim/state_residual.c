/* What errors and sections of single ranks become in another world. Pure functions of a save. */
#include <math.h>
#include <string.h>

#include "../kernels/float_bits.h"

#include "state_save.h"

/* The first piece of (program, tensor) or behind it. */
static size_t lower_bound(const lnt_state_save_t *save, uint64_t program, uint64_t tensor)
{
    size_t low = 0, high = save->n_pieces;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const lnt_state_extent_t *extent = &save->pieces[middle].extent;
        if (extent->program < program || (extent->program == program && extent->tensor < tensor)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void lnt_state_pieces_of(const lnt_state_save_t *save, uint32_t program, uint32_t tensor, size_t *first_p,
                         size_t *end_p)
{
    *first_p = lower_bound(save, program, tensor);
    *end_p = lower_bound(save, program, (uint64_t)tensor + 1);
}

static double value_at(const lnt_state_piece_t *piece, uint64_t i)
{
    float value;

    memcpy(&value, piece->values + i * sizeof(value), sizeof(value));
    return (double)value;
}

static void add_piece(const lnt_state_piece_t *piece, double *sums)
{
    for (uint64_t i = 0; i < piece->extent.count; i++)
        sums[piece->extent.offset + i] += value_at(piece, i);
}

/* Worker errors come before server errors. */
static void add_pieces(const lnt_state_save_t *save, uint32_t program, uint32_t tensor, double *sums)
{
    size_t i, end;

    lnt_state_pieces_of(save, program, tensor, &i, &end);
    for (; i < end && save->pieces[i].extent.server == 0; i++)
        add_piece(&save->pieces[i], sums);
    for (uint64_t k = 0; k < save->counts[tensor] && save->workers[program] != 0; k++)
        sums[k] /= save->workers[program];
    for (; i < end; i++)
        add_piece(&save->pieces[i], sums);
}

static void add_mass(lnt_state_mass_t *mass, double value)
{
    mass->before += value;
    mass->after += (double)(float)value;
    mass->magnitude += fabs(value);
    mass->squares += value * value;
}

void lnt_state_residual(const lnt_state_save_t *save, uint32_t program, uint32_t tensor, double *sums, float *out,
                        lnt_state_mass_t *mass_p)
{
    const uint64_t count = save->counts[tensor];

    memset(sums, 0, count * sizeof(*sums));
    add_pieces(save, program, tensor, sums);
    for (uint64_t i = 0; i < count; i++) {
        add_mass(mass_p, sums[i]);
        if (out != NULL) out[i] = (float)sums[i];
    }
}

lnt_status_t lnt_state_sums_check(const float *values, uint64_t n, uint32_t program, uint32_t tensor, uint64_t offset)
{
    uint64_t k = 0;

    if (lnt_arrays()->finite(values, n)) return LNT_OK;
    while (lnt_f32_is_finite(values[k]))
        k++;
    (void)lnt_error(LNT_ERR_CORRUPT, "use an earlier state: the run that saved this one has gone wrong",
                    "the saved errors of tensor %u in program %u, element %llu: their sum over ranks is not finite",
                    tensor, program, (unsigned long long)(offset + k));
    if (tensor != LNT_TENSOR_PAD) lnt_error_mutable()->tensor = tensor;
    return LNT_ERR_CORRUPT;
}

uint64_t lnt_state_longest(const lnt_state_save_t *save)
{
    uint64_t longest = 0;

    for (uint32_t t = 0; t < save->n_tensors; t++)
        longest = save->counts[t] > longest ? save->counts[t] : longest;
    return longest;
}

lnt_state_mass_t lnt_state_total_mass(const lnt_state_save_t *save, double *sums)
{
    lnt_state_mass_t mass = {.before = 0};

    for (uint32_t p = 0; p < LNT_PROGRAMS_MAX; p++) {
        for (uint32_t t = 0; t < save->n_tensors && (save->programs >> p & 1u) != 0; t++)
            lnt_state_residual(save, p, t, sums, NULL, &mass);
    }
    return mass;
}

/* ---- sections of single ranks ---- */

size_t lnt_state_local_size(const lnt_state_save_t *save, const char *section)
{
    for (uint32_t i = 0; save->row != NULL && save->row->arrays[i].name != NULL; i++) {
        const lnt_state_array_t *array = &save->row->arrays[i];
        if (strcmp(array->name, section) == 0) return array->local ? array->elem_bytes : 0;
    }
    return save->row != NULL && !lnt_state_is_common(save->row, section) && strcmp(section, LNT_STATE_ERRORS) != 0
               ? sizeof(double)
               : 0;
}

static double element(const lnt_state_part_t *part, size_t size, uint64_t i)
{
    float single;
    double number;

    if (size == 1) return part->payload[i];
    if (size == sizeof(single)) {
        memcpy(&single, part->payload + i * size, size);
        return (double)single;
    }
    memcpy(&number, part->payload + i * size, size);
    return number;
}

static void put_element(void *out, size_t size, uint64_t i, double value)
{
    const uint8_t bit = value != 0;
    const float single = (float)value;
    const void *from = size == 1 ? (const void *)&bit : size == sizeof(single) ? (const void *)&single : &value;

    memcpy((uint8_t *)out + i * size, from, size);
}

void lnt_state_mean(const lnt_state_save_t *save, const char *section, size_t size, uint64_t first, uint64_t n,
                    void *out)
{
    for (uint64_t i = 0; i < n; i++) {
        double sum = 0;
        for (uint32_t r = 0; r < save->world; r++)
            sum += element(lnt_state_find(&save->blobs[r], section), size, first + i);
        put_element(out, size, i, sum / save->world);
    }
}
