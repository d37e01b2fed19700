/* What vector instructions this processor and this system run: asked once, then one load. On machines other than x86-64
 * the answer is no.
 *
 * Every answer has a source file of its own, so that a test can put another in its place and run emulated kernels.
 */
#ifndef LNT_KERNELS_CPU_H
#define LNT_KERNELS_CPU_H

#include <stdbool.h>

bool lnt_cpu_has_avx2(void);   /* with FMA and F16C */
bool lnt_cpu_has_avx512(void); /* F, BW, DQ and VL, and all that lnt_cpu_has_avx2 asks for */

#endif
