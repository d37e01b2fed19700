/* Shared by the kernel tests: seeded random numbers, kinds of data, the usable implementations, and memory between
 * inaccessible pages.
 */
#ifndef KERNEL_TESTING_H
#define KERNEL_TESTING_H

#include <check.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../kernels/codec.h"
#include "../../kernels/impl.h"
#include "data_kinds.h"

/* ---- memory ---- */

/* `room` bytes between two inaccessible pages. A piece of it is taken at the front, at the back or somewhere inside;
 * what lies beside the piece is filled with GUARD. */
enum { GUARD = 0xa5, GUARD_BYTES = 64 };

typedef enum guarded_place { AT_BACK, AT_FRONT, INSIDE, GUARDED_PLACES } guarded_place_t;

typedef struct guarded {
    uint8_t *map;
    size_t page, room;
    uint8_t *start; /* of the piece taken last */
    size_t bytes;
} guarded_t;

static inline guarded_t guarded_create(size_t room)
{
    guarded_t g = {.page = (size_t)sysconf(_SC_PAGESIZE)};
    g.room = (room + 4 * GUARD_BYTES + g.page - 1) / g.page * g.page;
    g.map = mmap(NULL, g.room + 2 * g.page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(g.map, MAP_FAILED);
    ck_assert_int_eq(mprotect(g.map + g.page, g.room, PROT_READ | PROT_WRITE), 0);
    return g;
}

static inline void guarded_destroy(guarded_t *g)
{
    munmap(g->map, g->room + 2 * g->page);
}

/* How far the guard reaches in front of the piece and behind it. */
static inline size_t guarded_before(const guarded_t *g)
{
    size_t free_bytes = (size_t)(g->start - (g->map + g->page));
    return free_bytes < GUARD_BYTES ? free_bytes : GUARD_BYTES;
}

static inline size_t guarded_behind(const guarded_t *g)
{
    size_t free_bytes = (size_t)(g->map + g->page + g->room - (g->start + g->bytes));
    return free_bytes < GUARD_BYTES ? free_bytes : GUARD_BYTES;
}

/* `unit` is the alignment that the piece needs: inside, it starts at any multiple of it. */
static inline void *guarded_take_at(guarded_t *g, size_t bytes, guarded_place_t place, size_t unit)
{
    uint8_t *front = g->map + g->page, *back = front + g->room - bytes;
    uint8_t *inside = front + GUARD_BYTES + rng_below(GUARD_BYTES) / unit * unit;
    g->bytes = bytes;
    g->start = place == AT_BACK ? back : place == AT_FRONT ? front : inside;
    memset(g->start - guarded_before(g), GUARD, guarded_before(g));
    memset(g->start, GUARD, bytes);
    memset(g->start + bytes, GUARD, guarded_behind(g));
    return g->start;
}

static inline void *guarded_take(guarded_t *g, size_t bytes)
{
    return guarded_take_at(g, bytes, AT_BACK, 1);
}

static inline bool guarded_intact(const guarded_t *g)
{
    for (size_t i = 1; i <= guarded_before(g); i++)
        if (g->start[-(ptrdiff_t)i] != GUARD) return false;
    for (size_t i = 0; i < guarded_behind(g); i++)
        if (g->start[g->bytes + i] != GUARD) return false;
    return true;
}

/* ---- implementations ---- */

/* The next usable row behind `impl` (NULL: the first) whose ops of this codec are not those of the row before it. */
static inline const lnt_kernel_impl_t *next_impl(const lnt_kernel_impl_t *impl, lnt_codec_id_t id)
{
    size_t n_impls;
    const lnt_kernel_impl_t *rows = lnt_kernel_impls(&n_impls);
    if (!impl) return rows;
    lnt_codec_ops_t before = lnt_kernel_ops(impl, id);
    for (impl++; impl < rows + n_impls; impl++) {
        lnt_codec_ops_t ops = lnt_kernel_ops(impl, id);
        if (impl->usable() && memcmp(&ops, &before, sizeof(ops))) return impl;
    }
    return NULL;
}

static inline void say_unusable_impls(void)
{
    size_t n_impls;
    const lnt_kernel_impl_t *rows = lnt_kernel_impls(&n_impls);
    for (size_t i = 0; i < n_impls; i++)
        if (!rows[i].usable()) printf("skipped: kernels %s: this machine cannot run them\n", rows[i].name);
    (void)fflush(stdout);
}

static inline int run_suite(Suite *suite)
{
    rng_start();
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
