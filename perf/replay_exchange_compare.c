/* Algorithm "exchange", second half: what the world did against what the case holds. */
#include "replay_exchange.h"

#include <stdio.h>

/* Every frame of the list was made exactly once in every step, and no other. */
static void compare_frames(const replay_exchange_t *set, replay_report_t *report)
{
    for (uint32_t step = 0; step < set->n_steps; ++step) {
        double wrong = 0;

        for (size_t i = 0; i < set->n_frames; ++i) {
            wrong += (set->times[step * set->n_frames + i] != 1);
        }
        replay_report_add(report, "frames", step, wrong, 0);
    }
    replay_report_add(report, "unknown frames", 0, (double)atomic_load(&set->unknown_frames), 0);
    replay_report_add(report, "counted bytes", 0, (double)atomic_load(&set->miscounted), 0);
}

/* In a skipped round the bits of NaNs depend on the machine. With one node phase 1 is the model's alone: there it holds
 * a non-finite value at a dead coordinate, which decodes to +0 in what we have of it. */
static replay_equal_t equality(const replay_exchange_t *set, int phase, uint32_t step)
{
    if (set->verdict[step * set->n_ranks] == 0) {
        return REPLAY_BITS_EQUAL;
    }
    return ((set->n_nodes == 1) && (phase == 1)) ? REPLAY_WILD_EQUAL : REPLAY_NANS_EQUAL;
}

/* Scales and codes byte by byte, plain values as such. */
static void compare_phase(const replay_exchange_t *set, replay_report_t *report, int phase, const char *name,
                          const case_array_t *want, uint32_t step)
{
    const size_t bytes = set->phase_bytes[phase];
    const uint8_t *mine = set->phases[phase] + step * bytes, *other = (const uint8_t *)want->data + step * bytes;
    const bool values = (set->codec.row->id == LNT_CODEC_F32) || (set->n_nodes == 1);

    if (want->count != set->n_steps * bytes) {
        replay_report_add(report, name, step, (double)want->count, 0);
    } else if (values) {
        replay_report_add(report, name, step,
                          replay_floats_differ(mine, other, bytes / sizeof(float), equality(set, phase, step)), 0);
    } else {
        replay_report_add(report, name, step, replay_bytes_differ(mine, other, bytes), 0);
    }
}

static void compare_step(const replay_exchange_t *set, replay_report_t *report, const case_array_t *wants,
                         uint32_t step)
{
    const size_t n = set->n_elems;
    const float *output = (const float *)wants[2].data + step * n;
    const int32_t *verdict = (const int32_t *)wants[6].data + step;
    double outputs = 0, verdicts = 0;

    compare_phase(set, report, 1, "phase1", &wants[0], step);
    compare_phase(set, report, 2, "phase2", &wants[1], step);
    for (uint32_t r = 0; r < set->n_ranks; ++r) {
        outputs +=
            replay_floats_differ(set->output + ((size_t)step * set->n_ranks + r) * n, output, n, REPLAY_BITS_EQUAL);
        verdicts += (set->verdict[step * set->n_ranks + r] != *verdict);
    }
    replay_report_add(report, "output", step, outputs, 0);
    if (set->n_nodes > 1) {
        replay_report_add(report, "worker_error", step,
                          replay_floats_differ(set->worker_error + (size_t)step * set->n_nodes * n,
                                               (const float *)wants[3].data + (size_t)step * set->n_nodes * n,
                                               set->n_nodes * n, REPLAY_BITS_EQUAL),
                          0);
        replay_report_add(report, "server_error", step,
                          replay_floats_differ(set->server_error + step * n, (const float *)wants[4].data + step * n, n,
                                               REPLAY_BITS_EQUAL),
                          0);
    }
    replay_report_add(report, "wire", step,
                      replay_bytes_differ(set->wire + (size_t)step * 2 * set->n_ranks,
                                          (const int32_t *)wants[5].data + (size_t)step * 2 * set->n_ranks,
                                          2 * set->n_ranks * sizeof(int32_t)),
                      0);
    replay_report_add(report, "verdict", step, verdicts, 0);
}

/* Every error has one owner, where there are errors. */
static void compare_owners(const replay_exchange_t *set, replay_report_t *report)
{
    const uint8_t wanted = (set->n_nodes > 1) && set->codec.row->has_feedback;
    double wrong = 0;

    for (size_t i = 0; i < (set->n_nodes + 1) * set->n_elems; ++i) {
        wrong += (set->owned[i] != wanted);
    }
    replay_report_add(report, "owners", 0, wrong, 0);
}

int replay_exchange_compare(const replay_exchange_t *set, replay_report_t *report)
{
    static const struct {
        const char *name, *dtype;
    } names[] = {{"phase1", "u8"},        {"phase2", "u8"}, {"output", "f32"}, {"worker_error", "f32"},
                 {"server_error", "f32"}, {"wire", "i32"},  {"verdict", "i32"}};
    const size_t errors = (set->n_nodes > 1) ? set->n_elems * set->n_steps : 0;
    case_array_t wants[7];

    for (size_t i = 0; i < 7; ++i) {
        if (!case_array(set->file, names[i].name, names[i].dtype, &wants[i])) {
            snprintf(report->problem, sizeof(report->problem), "the case has no array %s", names[i].name);
            return REPLAY_USAGE;
        }
    }
    if ((wants[2].count != set->n_elems * set->n_steps) || (wants[3].count != errors * set->n_nodes) ||
        (wants[4].count != errors) || (wants[5].count != 2 * (size_t)set->n_ranks * set->n_steps) ||
        (wants[6].count != set->n_steps)) {
        snprintf(report->problem, sizeof(report->problem), "arrays of the case do not fit its sizes");
        return REPLAY_USAGE;
    }
    compare_frames(set, report);
    compare_owners(set, report);
    for (uint32_t step = 0; step < set->n_steps; ++step) {
        compare_step(set, report, wants, step);
    }
    return REPLAY_OK;
}
