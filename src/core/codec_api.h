/* The configuration of kernels: LINNET_KERNELS. Listed by lnt_config_tables with the others. */
#ifndef LNT_CODEC_API_H
#define LNT_CODEC_API_H

#include "../base/config.h"

extern const lnt_cfg_row_t lnt_kernels_config_rows[];

#endif
