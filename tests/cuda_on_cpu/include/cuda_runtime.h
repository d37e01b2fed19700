/* Stands in for the toolkit's header of this name where kernels are compiled for the host. C gets the runtime calls,
 * C++ the language of kernels as well.
 */
#ifndef LNT_EMU_CUDA_RUNTIME_H
#define LNT_EMU_CUDA_RUNTIME_H

#include "lnt_emu_api.h"

#ifdef __cplusplus
#include "lnt_emu_kernel.h"

#include "lnt_emu_atomics.h"
#include "lnt_emu_intrinsics.h"
#include "lnt_emu_warp.h"
#endif

#endif
