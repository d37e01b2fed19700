/* Topology against plain definitions: node numbers by smallest rank, local indices in rank order, S the smallest node.
 */
#include <string.h>

#include "../../src/topo/topo.h"
#include "testing.h"

enum { MAX_N = 16 };

static uint32_t below(uint32_t n)
{
    return (uint32_t)test_random_below(n);
}

static void expect_map(const uint64_t *labels, uint32_t n, const uint32_t *nodes)
{
    lnt_topo_t *topo;

    ck_assert_int_eq(lnt_topo_create(labels, n, &topo), LNT_OK);
    for (uint32_t r = 0; r < n; ++r) {
        ck_assert_uint_eq(topo->node_of[r], nodes[r]);
    }
    lnt_topo_destroy(topo);
}

START_TEST(known_maps)
{
    expect_map((uint64_t[]){9, 9, 9, 4, 4}, 5, (uint32_t[]){0, 0, 0, 1, 1});
    expect_map((uint64_t[]){7, 3, 7, 3}, 4, (uint32_t[]){0, 1, 0, 1});
    expect_map((uint64_t[]){0, UINT64_MAX, 5}, 3, (uint32_t[]){0, 1, 2});
    expect_map((uint64_t[]){42}, 1, (uint32_t[]){0});
}
END_TEST

/* Everything the struct says, from its definition, in the plainest way. */
static void check_against_labels(const lnt_topo_t *topo, const uint64_t *labels, uint32_t n)
{
    uint32_t n_nodes = 0, n_shards = n;

    ck_assert_uint_eq(topo->n_ranks, n);
    for (uint32_t r = 0; r < n; ++r) {
        uint32_t before = 0, all = 0, node = n_nodes;

        for (uint32_t q = 0; q < n; ++q) {
            before += (labels[q] == labels[r]) && (q < r);
            all += (labels[q] == labels[r]);
        }
        for (uint32_t q = 0; (q < r) && (before != 0); ++q) {
            node = (labels[q] == labels[r]) ? topo->node_of[q] : node;
        }
        n_nodes += (before == 0);
        n_shards = (all < n_shards) ? all : n_shards;
        ck_assert_uint_eq(topo->node_of[r], node);
        ck_assert_uint_eq(topo->local_of[r], before);
        ck_assert_uint_eq(lnt_topo_local_size(topo, node), all);
        ck_assert_uint_eq(lnt_topo_owner(topo, node, before), r);
    }
    ck_assert_uint_eq(topo->n_nodes, n_nodes);
    ck_assert_uint_eq(topo->n_shards, n_shards);
    ck_assert_uint_eq(topo->node_begin[n_nodes], n);
}

START_TEST(random_maps)
{
    for (int i = 0; i < 2000; ++i) {
        uint32_t n = 1 + below(MAX_N), kinds = 1 + below(n);
        uint64_t labels[MAX_N], names[MAX_N];
        lnt_topo_t *topo;

        for (uint32_t k = 0; k < kinds; ++k) {
            names[k] = test_random();
        }
        for (uint32_t r = 0; r < n; ++r) {
            labels[r] = names[below(kinds)];
        }
        ck_assert_int_eq(lnt_topo_create(labels, n, &topo), LNT_OK);
        check_against_labels(topo, labels, n);
        lnt_topo_destroy(topo);
    }
}
END_TEST

START_TEST(wrong_arguments)
{
    lnt_topo_t *topo = NULL;
    uint64_t label = 1;

    ck_assert_int_eq(lnt_topo_create(&label, 0, &topo), LNT_ERR_INVALID_ARG);
    ck_assert_int_eq(lnt_topo_create(NULL, 1, &topo), LNT_ERR_INVALID_ARG);
    ck_assert_int_eq(lnt_topo_create(&label, 1u << 16, &topo), LNT_ERR_UNSUPPORTED);
    ck_assert_ptr_null(topo);
    lnt_topo_destroy(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("topo");
    TCase *tcase = tcase_create("topo");

    tcase_add_test(tcase, known_maps);
    tcase_add_test(tcase, random_maps);
    tcase_add_test(tcase, wrong_arguments);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
