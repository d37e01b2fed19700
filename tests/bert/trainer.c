/* The training loop of one rank. Bytes are counted by differences of the communicator's counters around steps, so that
 * evaluations and checks do not count. */
#include "trainer.h"

#include <math.h>
#include <string.h>

#include "say.h"
#include "schedule.h"
#include "team.h"

static bool set_lr(bert_trainer_t *t, double lr)
{
    lnt_group_t values = {.struct_size = sizeof(values)};

    for (uint32_t group = 0; group < BERT_N_GROUPS; group++) {
        if (lnt_optim_get_group(t->optim, group, &values) != LNT_OK) {
            return false;
        }
        values.lr = (group == BERT_GROUP_PLAIN) ? lr * t->options->plain_lr : lr;
        if (lnt_optim_set_group(t->optim, group, &values) != LNT_OK) {
            return false;
        }
    }
    return true;
}

static double mean_loss(const bert_trainer_t *t)
{
    double sum = 0;

    for (int i = 0; i < t->batch->targets; i++) {
        sum += (double)bert_model_losses(t->model)[i];
    }
    return sum / t->batch->targets;
}

/* Training goes on after skips and refused freezes. */
static bool goes_on(lnt_status_t status)
{
    return status >= LNT_OK;
}

static bool end_step(bert_trainer_t *t, bert_step_record_t *record)
{
    lnt_plan_stats_t stats = {.struct_size = sizeof(stats)};
    lnt_status_t status = lnt_optim_end(t->optim);

    if (!goes_on(status)) {
        return false;
    }
    if (status < LNT_OK) {
        bert_say("step %d: %s", record->step, lnt_last_error()->cause);
    }
    record->skipped = status > LNT_OK;
    if (lnt_plan_get_stats(t->plan, &stats, true) != LNT_OK) {
        return false;
    }
    record->exposed_comm_ms = (double)stats.exposed_ns * 1e-6;
    return true;
}

/* What this rank has sent since the last call. */
static bool count_bytes(bert_trainer_t *t, uint64_t *all_p, uint64_t *inter_p)
{
    lnt_comm_stats_t now = {.struct_size = sizeof(now)};

    if (lnt_comm_get_stats(t->comm, &now, false) != LNT_OK) {
        return bert_lnt_fail("counting bytes");
    }
    *inter_p = now.wire_bytes_inter - t->counted.wire_bytes_inter;
    *all_p = now.wire_bytes_intra - t->counted.wire_bytes_intra + *inter_p;
    t->counted = now;
    return true;
}

static bool train_step(bert_trainer_t *t, bert_step_record_t *record)
{
    lnt_optim_info_t info = {.struct_size = sizeof(info)};
    double started = bert_now();

    record->step = t->step + 1;
    record->lr = t->options->lr * bert_schedule(t->step, t->options->steps);
    if ((lnt_optim_get_info(t->optim, &info) != LNT_OK) || !set_lr(t, record->lr) ||
        (lnt_optim_begin(t->optim) != LNT_OK) || !bert_trainer_compute(t)) {
        return bert_lnt_fail("a step");
    }
    record->phase = lnt_phase_name(info.phase);
    record->loss = mean_loss(t);
    record->compute_ms = (bert_now() - started) * 1e3;
    if (!end_step(t, record)) {
        return bert_lnt_fail("the end of a step");
    }
    record->step_ms = (bert_now() - started) * 1e3;
    return count_bytes(t, &record->wire_bytes, &record->wire_bytes_inter);
}

static void add_to_total(bert_trainer_t *t, const bert_step_record_t *record)
{
    bert_final_record_t *total = &t->total;

    total->wire_bytes += record->wire_bytes;
    total->wire_bytes_inter += record->wire_bytes_inter;
    total->step_ms += record->step_ms;
    total->compute_ms += record->compute_ms;
    total->exposed_comm_ms += record->exposed_comm_ms;
    total->skipped += record->skipped;
    total->last_phase = record->phase;
}

static bool after_step(bert_trainer_t *t, bert_step_record_t *record)
{
    int every = t->options->eval_every;
    uint64_t ignored;

    add_to_total(t, record);
    t->step++;
    record->evaluated = (every > 0) && (t->step % every == 0) && (t->step < t->last_step);
    if ((record->evaluated && !bert_trainer_evaluate(t, &record->score)) ||
        (t->options->check_params && !bert_trainer_compare(t))) {
        return false;
    }
    if (t->rank == 0) {
        bert_report_step(&t->report, record);
    }
    return count_bytes(t, &ignored, &ignored);
}

static bool finish(bert_trainer_t *t, int n_steps)
{
    bert_final_record_t *total = &t->total;

    if (t->first_rows != NULL) {
        bert_trainer_check_rows(t);
    }
    if (!bert_trainer_evaluate(t, &total->score) || !bert_trainer_compare(t)) {
        return false;
    }
    total->steps = t->step;
    total->ranks = (int)t->n_ranks;
    total->nodes = (int)t->info.n_nodes;
    total->emulate_gbps = t->info.emulate_gbps;
    total->step_ms /= (n_steps > 0) ? n_steps : 1;
    total->compute_ms /= (n_steps > 0) ? n_steps : 1;
    total->exposed_comm_ms /= (n_steps > 0) ? n_steps : 1;
    if (t->rank == 0) {
        bert_report_final(&t->report, total);
    }
    return (t->options->save == NULL) || bert_trainer_save(t, t->options->save);
}

bool bert_trainer_run(bert_trainer_t *t)
{
    int first = t->step;
    uint64_t ignored;

    if (!count_bytes(t, &ignored, &ignored)) {
        return false;
    }
    t->total.params_identical = true;
    t->total.last_phase = "none";
    while (t->step < t->last_step) {
        bert_step_record_t record = {0};

        if (!train_step(t, &record) || !after_step(t, &record)) {
            return false;
        }
    }
    return finish(t, t->step - first);
}
