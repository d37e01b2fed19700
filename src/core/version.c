/* Version of the library and how it was built. */
#include "core.h"
#include <linnet/version.h>

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown compiler"
#endif

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZER ", address sanitizer"
#elif defined(__SANITIZE_THREAD__)
#define SANITIZER ", thread sanitizer"
#else
#define SANITIZER ""
#endif

#if defined(__OPTIMIZE__)
#define OPTIMIZED "optimized"
#else
#define OPTIMIZED "not optimized"
#endif

#if defined(NDEBUG)
#define ASSERTS ""
#else
#define ASSERTS ", assertions on"
#endif

#if defined(LINNET_PARTS)
#define PARTS LINNET_PARTS
#else
#define PARTS "none"
#endif

uint32_t lnt_version(void)
{
    return LINNET_VERSION;
}

const char *lnt_version_string(void)
{
    return LINNET_VERSION_STRING;
}

const char *lnt_build_info(void)
{
    return "linnet " LINNET_VERSION_STRING ", " COMPILER ", " OPTIMIZED ASSERTS SANITIZER ", optional parts: " PARTS;
}
