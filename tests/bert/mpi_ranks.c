/* MPI only brings the ranks together; everything after that is linnet's. */
#include "mpi_ranks.h"

#include <linnet/mpi.h>
#include <stdlib.h>

#include "say.h"

bool mpi_ranks_apply(void)
{
    return (getenv("OMPI_COMM_WORLD_SIZE") != NULL) || (getenv("PMI_SIZE") != NULL);
}

int mpi_ranks_run(uint32_t n_ranks, bert_rank_fn_t work, void *arg)
{
    lnt_bootstrap_t bootstrap = {.struct_size = sizeof(bootstrap)};
    int provided, result = 1;

    (void)n_ranks;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
        bert_say("MPI does not start");
        return 1;
    }
    if (lnt_bootstrap_mpi(MPI_COMM_WORLD, &bootstrap) == LNT_OK) {
        result = work(arg, &bootstrap);
        lnt_bootstrap_destroy(&bootstrap);
    } else {
        bert_lnt_fail("taking over the ranks of mpirun");
    }
    if (result != 0) {
        MPI_Abort(MPI_COMM_WORLD, result);
    }
    MPI_Finalize();
    return result;
}
