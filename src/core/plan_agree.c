/* Agreement between ranks when a plan is committed or checked: votes, and the search for the first item that differs.
 *
 * The search is a bisection over hashes of list prefixes, so what travels is a few words however long the list is, and
 * no memory is needed. Every rank sees the same gathered words and so takes the same way and reports the same item.
 */
#include <stdio.h>
#include <string.h>

#include "plan_impl.h"

typedef struct lnt_plan_vote {
    int64_t status;
    char cause[LNT_PLAN_NOTE_BYTES - sizeof(int64_t)];
} lnt_plan_vote_t;

/* Where ranks are threads, a peer may have gone by now, and the end of its logger made all threads forget theirs. */
static void refresh_logger(const lnt_plan_t *plan)
{
    (void)lnt_context_enter(plan->comm->context);
}

lnt_status_t lnt_plan_agree(lnt_plan_t *plan, lnt_status_t mine)
{
    lnt_plan_vote_t vote = {.status = mine < 0 ? mine : LNT_OK};

    if (mine < 0)
        (void)snprintf(vote.cause, sizeof(vote.cause), "%.*s", (int)sizeof(vote.cause) - 1, lnt_last_error()->cause);
    if (mine <= -40) return mine; /* no communicator to tell it with */
    LNT_TRY(lnt_comm_gather_small(plan->comm, &vote, plan->notes, sizeof(vote)));
    if (mine < 0) return mine;
    for (uint32_t r = 0; r < plan->comm->n_ranks; r++) {
        memcpy(&vote, plan->notes + r * sizeof(vote), sizeof(vote));
        if (vote.status < 0) {
            refresh_logger(plan);
            vote.cause[sizeof(vote.cause) - 1] = '\0';
            (void)lnt_error((lnt_status_t)vote.status, NULL, "rank %u: %s", r, vote.cause);
            lnt_error_mutable()->peer = r;
            return (lnt_status_t)vote.status;
        }
    }
    return LNT_OK;
}

/* Gathers one word per rank into plan->notes; returns whether all are equal. */
static lnt_status_t gather_word(lnt_plan_t *plan, uint64_t mine, bool *equal_p)
{
    LNT_TRY(lnt_comm_gather_small(plan->comm, &mine, plan->notes, sizeof(mine)));
    *equal_p = true;
    for (uint32_t r = 0; r < plan->comm->n_ranks; r++) {
        *equal_p &= memcmp(plan->notes + r * sizeof(mine), &mine, sizeof(mine)) == 0;
    }
    return LNT_OK;
}

static uint64_t gathered_word(const lnt_plan_t *plan, uint32_t rank)
{
    uint64_t word;

    memcpy(&word, plan->notes + rank * sizeof(word), sizeof(word));
    return word;
}

/* The first rank whose word is not the most common one, and a rank that has the most common one. */
static void find_odd_rank(const lnt_plan_t *plan, uint32_t *odd_p, uint32_t *common_p)
{
    uint32_t n = plan->comm->n_ranks, best = 0;

    *odd_p = *common_p = 0;
    for (uint32_t r = 0; r < n; r++) {
        uint32_t same = 0;
        for (uint32_t q = 0; q < n; q++)
            same += gathered_word(plan, q) == gathered_word(plan, r);
        if (same > best) {
            best = same;
            *common_p = r;
        }
    }
    for (uint32_t r = n; r-- > 0;) {
        if (gathered_word(plan, r) != gathered_word(plan, *common_p)) *odd_p = r;
    }
}

/* Lists are equal before item `low` and differ before item `high`. */
static lnt_status_t bisect(lnt_plan_t *plan, const lnt_plan_list_t *list, uint64_t high, uint64_t *first_p)
{
    uint64_t low = 0;

    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        bool equal;
        LNT_TRY(gather_word(plan, list->hash(plan, middle), &equal));
        if (equal) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *first_p = low;
    return LNT_OK;
}

lnt_status_t lnt_plan_compare(lnt_plan_t *plan, const lnt_plan_list_t *list)
{
    uint64_t longest = 0, first;
    uint32_t odd, common;
    bool equal;
    char text[LNT_PLAN_NOTE_BYTES] = "";

    LNT_TRY(gather_word(plan, list->n_items, &equal));
    for (uint32_t r = 0; r < plan->comm->n_ranks; r++) {
        if (gathered_word(plan, r) > longest) longest = gathered_word(plan, r);
    }
    LNT_TRY(gather_word(plan, list->hash(plan, longest), &equal));
    if (equal) return LNT_OK;
    LNT_TRY(bisect(plan, list, longest, &first));
    LNT_TRY(gather_word(plan, list->hash(plan, first + 1), &equal));
    find_odd_rank(plan, &odd, &common);
    list->describe(plan, first, text, sizeof(text));
    LNT_TRY(lnt_comm_gather_small(plan->comm, text, plan->notes, sizeof(text)));
    refresh_logger(plan);
    (void)lnt_error(LNT_ERR_MISMATCH, list->cure, "%s %llu differs: %.*s on rank %u, %.*s on rank %u", list->noun,
                    (unsigned long long)first, 120, plan->notes + common * sizeof(text), common, 120,
                    plan->notes + odd * sizeof(text), odd);
    lnt_error_mutable()->peer = odd == plan->comm->rank ? common : odd;
    return LNT_ERR_MISMATCH;
}
