/* Loading the save of another world: every rank reads the blobs of all ranks that saved, so nothing travels but votes.
 *
 * The same nodes: as lnt_optim_state_import would. Other nodes: the residual of every element, fl(E + (1/K) sum of e),
 * becomes the server's error, or the carry of a world of one node, and worker errors are zero. All is computed into
 * buffers beside the live errors before anything live is written.
 */
#include <math.h>
#include <string.h>

#include "../src/base/fp_env.h"
#include "../src/base/hash.h"
#include "state_import.h"
#include "state_save.h"

typedef struct world_import {
    lnt_optim_t *optim;
    lnt_comm_info_t comm;
    uint32_t *nodes;
    lnt_state_save_t save;
    bool same; /* nodes */
    uint32_t programs, carry;
    lnt_state_errors_t errors;
    double *sums; /* [longest tensor] */
    float *residual;
    lnt_state_mass_t mass;
} world_import_t;

static lnt_status_t read_nodes(world_import_t *import)
{
    lnt_comm_t *comm = lnt_plan_comm(import->optim->plan);

    import->nodes = lnt_plan_alloc(import->comm.n_ranks * sizeof(*import->nodes), "nodes of ranks");
    if (import->nodes == NULL) return LNT_ERR_NO_MEMORY;
    return lnt_comm_get_nodes(comm, import->nodes);
}

/* All ranks must have been given the same bytes. */
static uint64_t hash_save(const void *const *blobs, const uint64_t *bytes, const lnt_state_save_t *save)
{
    uint64_t hash = save->world;
    uint64_t sum = 0;

    for (uint32_t i = 0; i < save->world; i++) /* in any order */
        sum += lnt_hash64(hash, blobs[i], bytes[i]);
    return lnt_hash64_u64(hash, sum);
}

/* The blob whose sections are taken: the own one where the world is the same. */
static const lnt_state_blob_t *main_blob(const world_import_t *import)
{
    return &import->save.blobs[import->same ? import->comm.rank : 0];
}

static lnt_status_t read_save(world_import_t *import, const void *const *blobs, const uint64_t *bytes, uint32_t n,
                              lnt_state_vote_t *mine)
{
    if (blobs == NULL || bytes == NULL)
        return lnt_error(LNT_ERR_INVALID_ARG, "give every rank all blobs of the save", "no saved states are given");
    LNT_TRY(read_nodes(import));
    LNT_TRY(lnt_state_save_open(blobs, bytes, n, &import->save));
    for (uint32_t r = 0; r < n; r++)
        LNT_TRY(lnt_state_check(import->optim, &import->save.blobs[r]));
    import->same = lnt_state_same_nodes(&import->save, import->comm.n_ranks, import->nodes);
    import->programs = lnt_state_programs(import->optim, &main_blob(import)->header);
    if ((import->save.programs & ~import->programs) != 0)
        return lnt_error(LNT_ERR_CORRUPT, NULL, "the save has errors of programs that its phase does not run");
    mine->common = hash_save(blobs, bytes, &import->save);
    return LNT_OK;
}

/* ---- own errors ---- */

static lnt_status_t make_room(world_import_t *import)
{
    const uint64_t longest = lnt_state_longest(&import->save);

    LNT_TRY(lnt_plan_set_carry(import->optim->plan, import->carry | import->save.programs));
    LNT_TRY(lnt_state_errors_measure(import->optim, &import->errors, 0));
    import->sums = lnt_plan_alloc(longest * sizeof(*import->sums), "sums of residuals");
    if (import->sums == NULL) return LNT_ERR_NO_MEMORY;
    import->residual = lnt_plan_alloc(longest * sizeof(*import->residual), "residuals of a tensor");
    return import->residual != NULL ? LNT_OK : LNT_ERR_NO_MEMORY;
}

static void mark(world_import_t *import, size_t own)
{
    memset(import->errors.seen + import->errors.first[own], 1, import->errors.own[own].count);
}

/* Own server errors of one tensor in one program; worker errors stay zero. */
static void take_residual(world_import_t *import, uint32_t program, uint32_t tensor)
{
    lnt_state_errors_t *errors = &import->errors;
    size_t first, end;

    lnt_state_pieces_of(&import->save, program, tensor, &first, &end);
    if (first == end) return;
    lnt_state_residual(&import->save, program, tensor, import->sums, import->residual, &import->mass);
    for (size_t i = 0; i < errors->n_own; i++) {
        const lnt_error_extent_t *own = &errors->own[i];
        if (own->program != program || own->tensor != tensor) continue;
        mark(import, i);
        if (own->server) {
            memcpy(errors->values + errors->first[i], import->residual + own->offset,
                   own->count * sizeof(*errors->values));
        }
    }
}

/* Pads hold nothing in a new world. */
static void take_residuals(world_import_t *import)
{
    for (uint32_t p = 0; p < LNT_PROGRAMS_MAX; p++) {
        for (uint32_t t = 0; t < import->save.n_tensors && (import->save.programs >> p & 1u) != 0; t++)
            take_residual(import, p, t);
    }
    for (size_t i = 0; i < import->errors.n_own; i++) {
        if (import->errors.own[i].tensor == LNT_TENSOR_PAD) mark(import, i);
    }
}

/* What the section of each rank holds for this one. */
static lnt_status_t take_sections(world_import_t *import)
{
    for (uint32_t r = 0; r < import->save.world; r++) {
        const lnt_state_part_t *part = lnt_state_find(&import->save.blobs[r], LNT_STATE_ERRORS);
        LNT_TRY(lnt_state_errors_take(import->optim, &import->errors, import->programs, part->payload, part->bytes));
    }
    import->mass = lnt_state_total_mass(&import->save, import->sums);
    import->mass.after = import->mass.before;
    return LNT_OK;
}

/* A world of one node saves no errors but a carry: there is nothing to find. */
static lnt_status_t form_errors(world_import_t *import)
{
    LNT_TRY(make_room(import));
    import->errors.sparse = import->save.sparse;
    import->errors.present = import->save.programs;
    if (import->same) {
        LNT_TRY(take_sections(import));
    } else {
        take_residuals(import);
    }
    return lnt_state_errors_check(&import->errors, import->programs);
}

/* ---- from here on nothing fails ---- */

static void load_means(const world_import_t *import)
{
    lnt_optim_t *optim = import->optim;

    for (uint32_t i = 0; optim->row->arrays[i].name != NULL; i++) {
        const lnt_state_array_t *array = &optim->row->arrays[i];
        uint64_t first = 0;
        if (!array->local || lnt_state_find(main_blob(import), array->name)->bytes == 0) continue;
        for (uint32_t t = 0; t < optim->n_tensors; first += optim->tensors[t++].count)
            lnt_state_mean(&import->save, array->name, array->elem_bytes, first, optim->tensors[t].count,
                           (uint8_t *)optim->arrays[i] + optim->tensors[t].base * array->elem_bytes);
    }
    for (uint32_t i = 0; i < lnt_optim_n_values(optim->row); i++) {
        const lnt_state_values_t *values = lnt_optim_values_row(optim->row, i);
        const uint64_t n = lnt_state_find(main_blob(import), values->name)->bytes / sizeof(double);
        if (values->local) lnt_state_mean(&import->save, values->name, sizeof(double), 0, n, optim->values[i]);
    }
}

static lnt_status_t run_import(world_import_t *import, const void *const *blobs, const uint64_t *bytes, uint32_t n)
{
    lnt_state_vote_t mine = {.status = LNT_OK};

    mine.status = read_save(import, blobs, bytes, n, &mine);
    LNT_TRY(lnt_state_vote(import->optim, mine));
    LNT_TRY(lnt_state_compare_votes(import->optim));
    LNT_TRY(lnt_state_vote(import->optim, (lnt_state_vote_t){.status = form_errors(import)}));
    lnt_state_load(import->optim, main_blob(import));
    if (!import->same) load_means(import);
    import->optim->imported = (lnt_optim_imported_t){import->mass.before, import->mass.after, import->mass.magnitude};
    return lnt_state_settle(import->optim, &import->errors, import->programs);
}

lnt_status_t lnt_optim_state_import_world(lnt_optim_t *optim, const void *const *blobs, const uint64_t *bytes,
                                          uint32_t n_blobs)
{
    LNT_FP_SCOPE();
    world_import_t import = {.optim = optim, .comm = {.struct_size = sizeof(import.comm)}};
    lnt_status_t status;

    LNT_CHECK_ARG(optim != NULL);
    LNT_TRY(lnt_optim_check_idle(optim, "lnt_optim_state_import_world"));
    if (optim->row->one_world) {
        return lnt_error(LNT_ERR_UNSUPPORTED, "resume in the world that saved, by lnt_optim_state_import",
                         "states of \"%s\" hold pads and errors of their world", optim->row->name);
    }
    LNT_TRY(lnt_comm_get_info(lnt_plan_comm(optim->plan), &import.comm));
    import.carry = lnt_plan_get_carry(optim->plan);
    status = run_import(&import, blobs, bytes, n_blobs);
    if (status < 0) (void)lnt_plan_set_carry(optim->plan, import.carry);
    lnt_state_errors_release(&import.errors);
    lnt_state_save_close(&import.save);
    lnt_plan_free(import.nodes);
    lnt_plan_free(import.sums);
    lnt_plan_free(import.residual);
    return status;
}
