/* The hints of a thread (next.h). */
#include "next.h"

_Thread_local lnt_next_t lnt_next;
