/* Start-up: a row per way of starting, the first that applies is taken. */
#include "team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "local_ranks.h"
#include "say.h"
#ifdef BERT_WITH_MPI
#include "mpi_ranks.h"
#endif

bool bert_lnt_fail(const char *doing)
{
    const lnt_error_info_t *error = lnt_last_error();

    return bert_fail("rank %lld: %s: %s: %s%s%s", (long long)error->rank, doing, lnt_status_string(error->status),
                     error->cause, (error->cure[0] == '\0') ? "" : "; ", error->cure);
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return (value != NULL) && (value[0] != '\0');
}

static bool under_environment(void)
{
    return is_set("RANK") && is_set("WORLD_SIZE") && is_set("MASTER_ADDR");
}

static int environment_run(uint32_t n_ranks, bert_rank_fn_t work, void *arg)
{
    lnt_bootstrap_t bootstrap = {.struct_size = sizeof(bootstrap)};
    lnt_context_t *context;
    int result = 1;

    (void)n_ranks;
    if (lnt_context_create(NULL, &context) != LNT_OK) {
        bert_lnt_fail("starting");
        return 1;
    }
    if (lnt_bootstrap_env(context, &bootstrap) == LNT_OK) {
        result = work(arg, &bootstrap);
        lnt_bootstrap_destroy(&bootstrap);
    } else {
        bert_lnt_fail("finding the other ranks");
    }
    lnt_context_destroy(context);
    return result;
}

static bool always(void)
{
    return true;
}

static const struct {
    bool (*applies)(void);
    int (*run)(uint32_t n_ranks, bert_rank_fn_t work, void *arg);
} starts[] = {
#ifdef BERT_WITH_MPI
    {mpi_ranks_apply, mpi_ranks_run},
#endif
    {under_environment, environment_run},
    {always, local_ranks_run},
};

int bert_team_run(uint32_t n_ranks, bert_rank_fn_t work, void *arg)
{
    size_t i = 0;

    while (!starts[i].applies()) {
        i++;
    }
    return starts[i].run(n_ranks, work, arg);
}

/* Values travel as floats that hold 16 bits each: exact whatever they are. */
bool bert_team_gather(lnt_comm_t *comm, uint32_t n_ranks, const uint64_t *mine, size_t n, uint64_t *all)
{
    enum { PARTS = 4, VALUES_MAX = 16 };
    float out[VALUES_MAX * PARTS];
    float *in = calloc((size_t)n_ranks * VALUES_MAX * PARTS, sizeof(float));
    bool good = (in != NULL) && (n <= VALUES_MAX);

    for (size_t i = 0; good && (i < n * PARTS); i++) {
        out[i] = (float)((mine[i / PARTS] >> (16 * (i % PARTS))) & 0xffff);
    }
    good = good && ((lnt_allgather(comm, out, in, n * PARTS, LNT_F32, NULL) == LNT_OK) || bert_lnt_fail("gathering"));
    for (size_t i = 0; good && (i < n_ranks * n); i++) {
        all[i] = 0;
        for (size_t part = 0; part < PARTS; part++) {
            all[i] |= (uint64_t)in[i * PARTS + part] << (16 * part);
        }
    }
    free(in);
    return good;
}
