/* Lists of cores such as "2,4-5". */
#ifndef LNT_CORE_CPU_LIST_H
#define LNT_CORE_CPU_LIST_H

#include <sched.h>

#include <linnet/types.h>

lnt_status_t lnt_cpu_list_parse(const char *text, cpu_set_t *cpus_p); /* LNT_ERR_CONFIG names what is wrong */
uint32_t lnt_cpu_count(void);                                         /* cores this process may use, at least 1 */

#endif
