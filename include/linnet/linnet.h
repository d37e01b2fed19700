/* linnet: gradient exchange over thin links. This is the umbrella header; read in this order:
 *
 *   status.h types.h   error codes, element types
 *   context.h          configuration, logging, progress thread
 *   comm.h             groups of ranks, bootstrap, topology
 *   codec.h            wire formats, usable alone
 *   coll.h             all-reduce, reduce-scatter, all-gather, broadcast, barrier; plain and compressed
 *   plan.h             tensors in buckets, one transaction per step
 *   optim.h            Adam, AdamW, 1-bit Adam
 *
 * Beside it: stage.h (write your own optimizer; experimental), mpi.h (start from an MPI communicator).
 *
 * Conventions. Objects are opaque pointers, create/destroy in pairs, destroy takes NULL. Params structs begin with
 * struct_size = sizeof(struct); a field that is zero means its default. A struct of a newer header is accepted by an
 * older library as long as the fields it does not know are zero, so zero structs before use, also those that are filled
 * by the library; an array of structs has the stride of its first struct_size. Functions return lnt_status_t, negative
 * for errors alone; outputs are last, named *_p, and written on success only. Counts are elements in uint64_t.
 * lnt_last_error() explains a failure.
 */
#ifndef LINNET_LINNET_H
#define LINNET_LINNET_H

#include <linnet/codec.h>
#include <linnet/coll.h>
#include <linnet/comm.h>
#include <linnet/context.h>
#include <linnet/optim.h>
#include <linnet/plan.h>
#include <linnet/status.h>
#include <linnet/types.h>

#endif
