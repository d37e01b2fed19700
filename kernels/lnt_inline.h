/* Functions that must be compiled with the flags and constants of the file that calls them. Nothing else. */
#ifndef LNT_INLINE_H
#define LNT_INLINE_H

#define LNT_INLINE static inline __attribute__((always_inline))

#endif
