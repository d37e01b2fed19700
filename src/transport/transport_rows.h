/* The rows of the transport table, for transport_table.c alone; everybody else asks lnt_transport_rows. */
#ifndef LNT_TRANSPORT_ROWS_H
#define LNT_TRANSPORT_ROWS_H

#include "transport.h"

extern const lnt_transport_ops_t lnt_transport_loop;
extern const lnt_transport_ops_t lnt_transport_shm;
extern const lnt_transport_ops_t lnt_transport_ucx; /* forwards to a module that is loaded on first use */

#endif
