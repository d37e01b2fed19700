/* Checksums and hashes: CRC-32C for stored sections, a 64-bit hash for comparing state between ranks. */
#ifndef LNT_BASE_HASH_H
#define LNT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint32_t lnt_crc32c(uint32_t crc, const void *data, size_t bytes); /* start with 0 */

/* 64-bit FNV-1a style mixing over 8-byte words, endian-fixed; `seed` chains calls. Not cryptographic. */
uint64_t lnt_hash64(uint64_t seed, const void *data, size_t bytes);
uint64_t lnt_hash64_u64(uint64_t seed, uint64_t value);
uint64_t lnt_hash64_text(uint64_t seed, const char *text);

#endif
