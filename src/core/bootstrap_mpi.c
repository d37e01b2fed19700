/* liblinnet_mpi: a bootstrap over an MPI communicator. Uses the public API only, since it is a library of its own. */
#include <linnet/mpi.h>

#include <limits.h>
#include <stdlib.h>

typedef struct mpi_arg {
    MPI_Comm comm;
} mpi_arg_t;

static int mpi_gather(void *arg, const void *input, void *output, size_t bytes)
{
    const mpi_arg_t *mpi = arg;

    if (bytes > INT_MAX) {
        return 1;
    }
    return MPI_Allgather(input, (int)bytes, MPI_BYTE, output, (int)bytes, MPI_BYTE, mpi->comm) != MPI_SUCCESS;
}

lnt_status_t lnt_bootstrap_mpi(MPI_Comm mpi_comm, lnt_bootstrap_t *bootstrap)
{
    int rank, n_ranks;
    mpi_arg_t *arg;

    if (bootstrap == NULL || mpi_comm == MPI_COMM_NULL) {
        return LNT_ERR_INVALID_ARG;
    }
    if (MPI_Comm_rank(mpi_comm, &rank) != MPI_SUCCESS || MPI_Comm_size(mpi_comm, &n_ranks) != MPI_SUCCESS) {
        return LNT_ERR_BOOTSTRAP;
    }
    arg = malloc(sizeof(*arg));
    if (arg == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    arg->comm = mpi_comm;
    *bootstrap = (lnt_bootstrap_t){.struct_size = sizeof(*bootstrap),
                                   .rank = (uint32_t)rank,
                                   .n_ranks = (uint32_t)n_ranks,
                                   .allgather = mpi_gather,
                                   .arg = arg,
                                   .destroy = free};
    return LNT_OK;
}

lnt_status_t lnt_comm_create_mpi(lnt_context_t *context, MPI_Comm mpi_comm, const lnt_comm_params_t *params,
                                 lnt_comm_t **comm_p)
{
    lnt_comm_params_t own = {.struct_size = sizeof(own)};
    lnt_bootstrap_t bootstrap;
    lnt_status_t status = lnt_bootstrap_mpi(mpi_comm, &bootstrap);

    if (status < 0) {
        return status;
    }
    if (params != NULL) {
        own = *params;
    }
    own.bootstrap = &bootstrap;
    status = lnt_comm_create(context, &own, comm_p);
    lnt_bootstrap_destroy(&bootstrap);
    return status;
}
