/* Started by mpirun: communicators from MPI_COMM_WORLD and from a half of it, both ways of linnet/mpi.h, and linnet
 * objects that outlive MPI_Finalize. Exit 0 when every sum is right on every rank. */
#include <linnet/linnet.h>
#include <linnet/mpi.h>
#include <stdio.h>

static int report(const char *what, lnt_status_t status)
{
    if (status != LNT_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, lnt_status_string(status), lnt_last_error()->cause);
    }
    return status != LNT_OK;
}

/* Sums rank + 1 over the ranks of comm and compares with n (n + 1) / 2. */
static int check_sum(lnt_comm_t *comm, uint32_t rank, uint32_t n_ranks)
{
    lnt_comm_info_t info = {.struct_size = sizeof(info)};
    lnt_coll_params_t params = {.struct_size = sizeof(params), .op = LNT_SUM};
    float values[3], sums[3];
    float expected = (float)(n_ranks * (n_ranks + 1) / 2);

    if (report("info", lnt_comm_get_info(comm, &info))) {
        return 1;
    }
    if ((info.rank != rank) || (info.n_ranks != n_ranks)) {
        fprintf(stderr, "rank %u of %u, expected %u of %u\n", info.rank, info.n_ranks, rank, n_ranks);
        return 1;
    }
    for (int i = 0; i < 3; i++) {
        values[i] = (float)(rank + 1);
    }
    if (report("all-reduce", lnt_allreduce(comm, values, sums, 3, LNT_F32, &params))) {
        return 1;
    }
    for (int i = 0; i < 3; i++) {
        if (sums[i] != expected) {
            fprintf(stderr, "sum %g, expected %g\n", (double)sums[i], (double)expected);
            return 1;
        }
    }
    return 0;
}

/* Ranks of the same parity, through a bootstrap of our own. */
static int check_half(lnt_context_t *context, int rank, int n_ranks)
{
    MPI_Comm half;
    lnt_bootstrap_t bootstrap;
    lnt_comm_params_t params = {.struct_size = sizeof(params), .bootstrap = &bootstrap};
    lnt_comm_t *comm = NULL;
    int bad;

    if (MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half) != MPI_SUCCESS) {
        return 1;
    }
    if (report("bootstrap", lnt_bootstrap_mpi(half, &bootstrap))) {
        return 1;
    }
    bad = report("comm of a half", lnt_comm_create(context, &params, &comm));
    lnt_bootstrap_destroy(&bootstrap);
    (void)MPI_Comm_free(&half);
    bad = bad || check_sum(comm, (uint32_t)(rank / 2), (uint32_t)((n_ranks + 1 - rank % 2) / 2));
    return report("destroy", lnt_comm_destroy(comm)) || bad;
}

int main(int argc, char **argv)
{
    lnt_context_t *context = NULL;
    lnt_comm_t *world = NULL;
    int rank, n_ranks, bad;

    if ((MPI_Init(&argc, &argv) != MPI_SUCCESS) || (MPI_Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS) ||
        (MPI_Comm_size(MPI_COMM_WORLD, &n_ranks) != MPI_SUCCESS)) {
        return 1;
    }
    if (report("context", lnt_context_create(NULL, &context)) ||
        report("comm", lnt_comm_create_mpi(context, MPI_COMM_WORLD, NULL, &world))) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    bad = check_sum(world, (uint32_t)rank, (uint32_t)n_ranks);
    bad = check_half(context, rank, n_ranks) || bad;
    bad = (MPI_Finalize() != MPI_SUCCESS) || bad;
    bad = check_sum(world, (uint32_t)rank, (uint32_t)n_ranks) || bad; /* MPI is not needed any more */
    bad = report("destroy", lnt_comm_destroy(world)) || bad;
    bad = report("destroy context", lnt_context_destroy(context)) || bad;
    return bad;
}
