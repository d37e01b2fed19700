/* Start from an MPI communicator. In its own library (liblinnet_mpi), which is the only part that links MPI.
 *
 * MPI is used inside these two calls only, by the calling thread; nothing of it is kept, and MPI_Finalize may come
 * before or after the linnet objects are destroyed. MPI_THREAD_FUNNELED is enough.
 */
#ifndef LINNET_MPI_H
#define LINNET_MPI_H

#include <mpi.h>

#include <linnet/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A bootstrap over all ranks of mpi_comm; valid until lnt_bootstrap_destroy. */
LNT_API lnt_status_t lnt_bootstrap_mpi(MPI_Comm mpi_comm, lnt_bootstrap_t *bootstrap);

/* lnt_comm_create over mpi_comm. params may be NULL; params->bootstrap is ignored. Collective over mpi_comm. */
LNT_API lnt_status_t lnt_comm_create_mpi(lnt_context_t *context, MPI_Comm mpi_comm, const lnt_comm_params_t *params,
                                         lnt_comm_t **comm_p);

#ifdef __cplusplus
}
#endif
#endif
