/* f32 seen as bits, and wire loads and stores at any alignment. Host and device.
 *
 * Comparisons of magnitudes as integers are exact, do not depend on order and keep NaN and Inf.
 */
#ifndef LNT_FLOAT_BITS_H
#define LNT_FLOAT_BITS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "lnt_hd.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire is little-endian and written by memcpy: add byte swaps here before building for this machine"
#endif

#define LNT_F32_INF_BITS 0x7f800000u
#define LNT_F32_MAX_BITS 0x7f7fffffu

LNT_HD uint32_t lnt_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

LNT_HD float lnt_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

LNT_HD uint32_t lnt_f32_abs_bits(float value)
{
    return lnt_f32_bits(value) & 0x7fffffffu;
}

LNT_HD bool lnt_f32_is_finite(float value)
{
    return lnt_f32_abs_bits(value) < LNT_F32_INF_BITS;
}

/* Top bit set if and only if value is NaN or Inf: a form whose OR over many elements vectorises. */
LNT_HD uint32_t lnt_f32_nonfinite_bit(float value)
{
    return lnt_f32_abs_bits(value) + 0x00800000u;
}

LNT_HD float lnt_wire_load_f32(const uint8_t *wire)
{
    float value;
    memcpy(&value, wire, sizeof(value));
    return value;
}

LNT_HD void lnt_wire_store_f32(uint8_t *wire, float value)
{
    memcpy(wire, &value, sizeof(value));
}

#endif
