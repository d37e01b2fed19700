/* linnet-perf: time, bytes and correctness of the collectives, with and without codecs. Options and table follow
 * nccl-tests.
 *
 * Ranks are processes it forks, playing as many nodes as asked, or, where RANK and WORLD_SIZE are set, this process is
 * one rank of a world that was started from outside.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../src/base/error.h"
#include "perf_tool.h"

static const char *const dtype_words[] = {"f32", "bf16", "f16", "float", "bfloat16", "half", NULL};
static const char *const redop_words[] = {"mean", "sum", "avg", "add", NULL};

#define OPTION(_letter, _name, _argument, _type, _default, _field, _help)                                              \
    {                                                                                                                  \
        _letter, _argument,                                                                                            \
        {                                                                                                              \
            .name = _name, .default_text = _default, .help = _help, .offset = offsetof(perf_config_t, _field),         \
            .type = _type                                                                                              \
        }                                                                                                              \
    }
#define LIMITED(_letter, _name, _argument, _type, _default, _field, _min, _max, _help)                                 \
    {                                                                                                                  \
        _letter, _argument,                                                                                            \
        {                                                                                                              \
            .name = _name, .default_text = _default, .help = _help, .offset = offsetof(perf_config_t, _field),         \
            .type = _type, .min = _min, .max = _max                                                                    \
        }                                                                                                              \
    }
#define CHOICE(_letter, _name, _default, _words, _field, _help)                                                        \
    {                                                                                                                  \
        _letter, "WORD",                                                                                               \
        {                                                                                                              \
            .name = _name, .default_text = _default, .help = _help, .offset = offsetof(perf_config_t, _field),         \
            .type = LNT_CFG_ENUM, .words = _words                                                                      \
        }                                                                                                              \
    }

static const tool_option_t options[] = {
    OPTION('b', "begin", "BYTES", LNT_CFG_BYTES, "4k", begin_bytes,
           "smallest size of the uncompressed buffer (4k, 16M)"),
    OPTION('e', "end", "BYTES", LNT_CFG_BYTES, "4m", end_bytes, "largest size"),
    LIMITED('f', "factor", "N", LNT_CFG_U64, "4", factor, 2, 1e6, "factor from size to size"),
    OPTION('i', "step", "BYTES", LNT_CFG_BYTES, "0", step_bytes,
           "step from size to size instead of a factor; 0: factor"),
    LIMITED('n', "iters", "N", LNT_CFG_U32, "20", iters, 1, 1e6, "timed runs of every lane"),
    LIMITED('w', "warmup", "N", LNT_CFG_U32, "5", warmup, 0, 1e6, "runs before them"),
    OPTION('c', "check", "0|1", LNT_CFG_BOOL, "1", check, "compare every size with a float64 oracle and between ranks"),
    CHOICE('d', "dtype", "f32", dtype_words, dtype, "f32, bf16 or f16"),
    CHOICE('o', "redop", "mean", redop_words, redop, "mean or sum"),
    OPTION(0, "op", "A,B|all", LNT_CFG_STRING, "allreduce", ops, "allreduce, reduce_scatter, allgather, broadcast"),
    OPTION(0, "codec", "A,B|all|none", LNT_CFG_STRING, "all", codecs, "codecs to run; none: the plain form only"),
    OPTION(0, "residual", NULL, LNT_CFG_BOOL, "off", residual,
           "all-reduce with error feedback, and check its identity"),
    OPTION(0, "in-place", "0|1", LNT_CFG_BOOL, "1", in_place, "time in-place runs too"),
    LIMITED(0, "ranks", "N", LNT_CFG_U32, "0", ranks, 0, NODES_RANKS_MAX,
            "ranks to start here; 0: as many as --node-map has, else 2"),
    OPTION(0, "nodes", "M", LNT_CFG_STRING, "", nodes, "nodes they play; one per rank if not given"),
    OPTION(0, "node-map", "a,b,..", LNT_CFG_STRING, "", node_map, "node of every rank instead, e.g. 0,0,0,1,1"),
    LIMITED(0, "emulate-gbps", "X", LNT_CFG_F64, "0", emulate_gbps, 0, 1e6,
            "limit what a node sends to others; results say emulated"),
    OPTION(0, "transports", "LIST", LNT_CFG_STRING, "", transports, "transports allowed, e.g. shm,ucx"),
    LIMITED(0, "threads", "N", LNT_CFG_U32, "0", threads, 0, 64, "threads of a rank that code; 0: LINNET_THREADS"),
    LIMITED('T', "timeout", "TIME", LNT_CFG_TIME_MS, "60s", timeout_ms, 50, 86400000,
            "a run without progress for this long fails"),
    LIMITED(0, "max-time", "TIME", LNT_CFG_TIME_MS, "5min", budget_ms, 1, 1e9,
            "measuring one size ends early after this long"),
    OPTION(0, "seed", "N", LNT_CFG_U64, "0", seed, "of the inputs; 0: a new one, printed"),
    OPTION('J', "json", "FILE", LNT_CFG_STRING, "", json, "also write JSON lines"),
    {0, NULL, {.name = NULL}},
};

static const tool_t tool = {
    .name = PERF_NAME,
    .purpose = "time, bytes and correctness of linnet's collectives",
    .options = options,
    .notes = "With RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, this process is one rank of that world (nodes: "
             "--nodes,\n"
             "--node-map, LINNET_NODE, else the hosts). Columns and formulas: docs/perf.md.\n"
             "Exit code: 0; 1 when an element is wrong or a rank is lost; 2 for a wrong command line.",
};

/* ---- the command line as a whole ---- */

static int check_lists(const perf_config_t *config)
{
    const char *ops[PERF_OPS + 1] = {"all"}, *codecs[PERF_LANES_MAX + 2] = {"all", "none"};
    size_t n_codecs = 2;
    int code;

    for (int op = 0; op < PERF_OPS; op++)
        ops[op + 1] = perf_formulas[op].name;
    for (const char *const *name = lnt_codec_list(); *name != NULL && n_codecs < PERF_LANES_MAX + 2; name++)
        codecs[n_codecs++] = *name;
    if (config->ops == NULL || config->codecs == NULL) {
        (void)fprintf(stderr, PERF_NAME ": --op and --codec need at least one name\n");
        return TOOL_USAGE;
    }
    code = tool_check_list(&tool, "operation", config->ops, ops, PERF_OPS + 1);
    return (code == TOOL_OK) ? tool_check_list(&tool, "codec", config->codecs, codecs, n_codecs) : code;
}

/* The map the options ask for; n_ranks 0: as many as they say. */
static bool asked_map(const perf_config_t *config, uint32_t n_ranks, node_map_t *map)
{
    char why[256], one_each[16];

    if (n_ranks == 0) n_ranks = (config->ranks == 0 && config->node_map == NULL) ? 2 : config->ranks;
    (void)snprintf(one_each, sizeof(one_each), "%u", n_ranks);
    if (node_map_read(map, n_ranks,
                      (config->node_map != NULL) ? config->node_map
                      : (config->nodes != NULL)  ? config->nodes
                                                 : one_each,
                      why, sizeof(why))) {
        return true;
    }
    (void)fprintf(stderr, PERF_NAME ": %s\n", why);
    return false;
}

/* ---- one rank ---- */

/* The communicator's own numbering of nodes, and one seed for all. */
static lnt_status_t agree(perf_world_t *world)
{
    uint64_t seed = world->config->seed;

    world->info.struct_size = sizeof(world->info);
    LNT_TRY(lnt_comm_get_info(world->comm, &world->info));
    LNT_TRY(lnt_comm_get_nodes(world->comm, world->map.node_of));
    world->map.n_ranks = world->info.n_ranks;
    world->map.n_nodes = world->info.n_nodes;
    if (seed == 0 && world->info.rank == 0) seed = (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
    LNT_TRY(perf_gather_max(world->comm, world->info.n_ranks, &seed, 1));
    world->seed = seed;
    return LNT_OK;
}

static lnt_status_t open_world(perf_world_t *world, const lnt_bootstrap_t *bootstrap)
{
    const perf_config_t *config = world->config;
    lnt_comm_params_t params = {.struct_size = sizeof(params),
                                .bootstrap = bootstrap,
                                .timeout_ms = config->timeout_ms,
                                .emulate_gbps = config->emulate_gbps,
                                .transports = config->transports};
    char node[32];
    bool from_outside = lnt_config_getenv("RANK") != NULL && config->nodes == NULL && config->node_map == NULL;

    if (bootstrap->n_ranks > NODES_RANKS_MAX) return lnt_error(LNT_ERR_OUT_OF_RANGE, NULL, "too many ranks");
    if (!from_outside) {
        if (!asked_map(config, bootstrap->n_ranks, &world->map))
            return lnt_error(LNT_ERR_INVALID_ARG, NULL, "no such node map");
        (void)snprintf(node, sizeof(node), "node%u", world->map.node_of[bootstrap->rank]);
        params.node = node;
    }
    LNT_TRY(lnt_comm_create(world->context, &params, &world->comm));
    return agree(world);
}

static int run_rank(const perf_config_t *config, lnt_bootstrap_t *bootstrap)
{
    static perf_world_t world;
    int code;

    world.config = config;
    if (world.context == NULL && tool_create_context(PERF_NAME, &world.context) < 0) return tool_complain(PERF_NAME);
    machine_look(&world.machine);
    if (bootstrap->rank == 0) world.machine.c2c_ns = machine_core_to_core_ns();
    code = (open_world(&world, bootstrap) < 0) ? tool_complain(PERF_NAME) : perf_run(&world);
    (void)lnt_comm_destroy(world.comm);
    (void)lnt_context_destroy(world.context);
    return code;
}

static int run_from_environment(const perf_config_t *config)
{
    lnt_context_t *context = NULL;
    lnt_bootstrap_t bootstrap = {.struct_size = sizeof(bootstrap)};
    int code;

    if (tool_create_context(PERF_NAME, &context) < 0) return tool_complain(PERF_NAME);
    code = (lnt_bootstrap_env(context, &bootstrap) < 0) ? tool_complain(PERF_NAME) : run_rank(config, &bootstrap);
    lnt_bootstrap_destroy(&bootstrap);
    (void)lnt_context_destroy(context);
    return code;
}

static int run_tool(const perf_config_t *config)
{
    static node_map_t map;
    int code = check_lists(config);

    if (code != TOOL_OK) return code;
    if (config->threads != 0) { /* before any rank makes its context */
        char threads[16];

        (void)snprintf(threads, sizeof(threads), "%u", config->threads);
        (void)setenv("LINNET_THREADS", threads, 1);
    }
    if (config->begin_bytes > config->end_bytes) {
        (void)fprintf(stderr, PERF_NAME ": --begin is above --end\n");
        return TOOL_USAGE;
    }
    if (lnt_config_getenv("RANK") != NULL && lnt_config_getenv("WORLD_SIZE") != NULL)
        return run_from_environment(config);
    if (!asked_map(config, 0, &map)) return TOOL_USAGE;
    return perf_launch(config, map.n_ranks, run_rank);
}

int main(int argc, char **argv)
{
    perf_config_t config;
    bool help;
    int code = tool_read_options(&tool, argc, argv, &config, &help);

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (code == TOOL_OK && !help) code = run_tool(&config);
    tool_release(&tool, &config);
    return tool_finish(PERF_NAME, code);
}
