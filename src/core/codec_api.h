/* The configuration of kernels: LINNET_KERNELS. Listed by lnt_config_tables with the others. A context reads it once,
 * when it is created: codecs made later, those of running plans among them, all use what it selected.
 */
#ifndef LNT_CODEC_API_H
#define LNT_CODEC_API_H

#include "../base/config.h"

extern const lnt_cfg_row_t lnt_kernels_config_rows[];

/* Selects (lnt_kernels_select) what LINNET_KERNELS says; an error where this machine cannot run it. */
lnt_status_t lnt_kernels_configure(void);

#endif
