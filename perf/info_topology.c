/* Topology as this process sees it: a real communicator is made, over the environment bootstrap when RANK and
 * WORLD_SIZE are set, else of one rank. Uses the public interface as any program would. */
#include <stdio.h>
#include <stdlib.h>

#include <linnet/linnet.h>

#include "../src/topo/topo.h"
#include "info_tool.h"

enum { THREADS_TIMEOUT_MS = 10000 };

static lnt_status_t open_bootstrap(lnt_context_t *context, lnt_bootstrap_t *bootstrap)
{
    if (lnt_config_getenv("RANK") != NULL && lnt_config_getenv("WORLD_SIZE") != NULL)
        return lnt_bootstrap_env(context, bootstrap);
    printf("topology of one rank, since the environment describes no world (RANK and WORLD_SIZE)\n");
    return lnt_bootstrap_threads(1, THREADS_TIMEOUT_MS, bootstrap);
}

static void print_nodes(const lnt_comm_t *comm, const lnt_comm_info_t *info)
{
    uint32_t *node_of = calloc(info->n_ranks, sizeof(*node_of));

    if (node_of == NULL || lnt_comm_get_nodes(comm, node_of) < 0) {
        free(node_of);
        return;
    }
    for (uint32_t node = 0; node < info->n_nodes; node++) {
        printf("  node %u: ranks", node);
        for (uint32_t rank = 0; rank < info->n_ranks; rank++) {
            if (node_of[rank] == node) printf(" %u%s", rank, (rank == info->rank) ? " (this process)" : "");
        }
        printf("\n");
    }
    free(node_of);
}

static lnt_status_t print_topology(const lnt_comm_t *comm)
{
    lnt_comm_info_t info = {.struct_size = sizeof(info)};
    char host[512] = "unknown";
    lnt_status_t status = lnt_comm_get_info(comm, &info);

    if (status < 0) return status;
    (void)lnt_topo_host_id(host, sizeof(host));
    printf("topology: rank %u of %u, node %u of %u, local rank %u of %u, %u shards\n", info.rank, info.n_ranks,
           info.node, info.n_nodes, info.local_rank, info.n_local, info.n_shards);
    printf("  host identity: %s\n", host);
    printf("  transports: %s inside the node, %s between nodes\n", info.intra_transport, info.inter_transport);
    printf("  threads of this rank that code: %u\n", info.n_threads);
    if (info.emulate_gbps > 0) printf("  emulated link: %g Gbit/s out of every node\n", info.emulate_gbps);
    print_nodes(comm, &info);
    return LNT_OK;
}

int info_topology(void)
{
    lnt_comm_params_t params = {.struct_size = sizeof(params)};
    lnt_context_t *context = NULL;
    lnt_comm_t *comm = NULL;
    lnt_bootstrap_t bootstrap = {.struct_size = sizeof(bootstrap)};
    lnt_status_t status = tool_create_context(INFO_NAME, &context);

    if (status >= 0) status = open_bootstrap(context, &bootstrap);
    if (status >= 0) {
        params.bootstrap = &bootstrap;
        status = lnt_comm_create(context, &params, &comm);
        lnt_bootstrap_destroy(&bootstrap);
    }
    if (status >= 0) status = print_topology(comm);
    (void)lnt_comm_destroy(comm);
    (void)lnt_context_destroy(context);
    return (status < 0) ? tool_complain(INFO_NAME) : TOOL_OK;
}
