/* The toolkit's vector types, with its names, sizes and alignments, for machines without the toolkit. C and C++.
 *
 * Only what our kernels load, store and launch with; arithmetic on vectors does not exist in CUDA either.
 */
#ifndef LNT_EMU_VECTOR_H
#define LNT_EMU_VECTOR_H

#define LNT_EMU_VECTOR2(_name, _type)                                                                                  \
    typedef struct __attribute__((aligned(2 * sizeof(_type)))) _name {                                                 \
        _type x, y;                                                                                                    \
    } _name;                                                                                                           \
    static inline _name make_##_name(_type x, _type y)                                                                 \
    {                                                                                                                  \
        _name v = {x, y};                                                                                              \
        return v;                                                                                                      \
    }

#define LNT_EMU_VECTOR3(_name, _type)                                                                                  \
    typedef struct _name {                                                                                             \
        _type x, y, z;                                                                                                 \
    } _name;                                                                                                           \
    static inline _name make_##_name(_type x, _type y, _type z)                                                        \
    {                                                                                                                  \
        _name v = {x, y, z};                                                                                           \
        return v;                                                                                                      \
    }

/* 16 bytes is the widest access of the device: vectors beyond it are aligned to 16 only. */
#define LNT_EMU_VECTOR4(_name, _type)                                                                                  \
    typedef struct __attribute__((aligned(4 * sizeof(_type) < 16 ? 4 * sizeof(_type) : 16))) _name {                   \
        _type x, y, z, w;                                                                                              \
    } _name;                                                                                                           \
    static inline _name make_##_name(_type x, _type y, _type z, _type w)                                               \
    {                                                                                                                  \
        _name v = {x, y, z, w};                                                                                        \
        return v;                                                                                                      \
    }

LNT_EMU_VECTOR2(char2, signed char)
LNT_EMU_VECTOR2(uchar2, unsigned char)
LNT_EMU_VECTOR2(short2, short)
LNT_EMU_VECTOR2(ushort2, unsigned short)
LNT_EMU_VECTOR2(int2, int)
LNT_EMU_VECTOR2(uint2, unsigned int)
LNT_EMU_VECTOR2(float2, float)
LNT_EMU_VECTOR2(double2, double)
LNT_EMU_VECTOR2(longlong2, long long)
LNT_EMU_VECTOR2(ulonglong2, unsigned long long)
LNT_EMU_VECTOR3(int3, int)
LNT_EMU_VECTOR3(uint3, unsigned int)
LNT_EMU_VECTOR3(float3, float)
LNT_EMU_VECTOR4(char4, signed char)
LNT_EMU_VECTOR4(uchar4, unsigned char)
LNT_EMU_VECTOR4(short4, short)
LNT_EMU_VECTOR4(ushort4, unsigned short)
LNT_EMU_VECTOR4(int4, int)
LNT_EMU_VECTOR4(uint4, unsigned int)
LNT_EMU_VECTOR4(float4, float)
LNT_EMU_VECTOR4(double4, double)

typedef struct dim3 {
    unsigned int x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
#endif
} dim3;

#endif
