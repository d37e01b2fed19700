/* JSON by fprintf: keys are fixed and values are numbers, flags, or names without special characters. Numbers that are
 * not finite become null. */
#include "report.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "say.h"

static const double SAY_EVERY_S = 15; /* where standard error is no terminal */

double bert_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool bert_report_open(bert_report_t *report, const bert_options_t *options, const char *optimizer, int first_step,
                      int last_step)
{
    *report = (bert_report_t){.options = options, .optimizer = optimizer, .first_step = first_step};
    report->n_steps = last_step - first_step;
    report->started = report->said = bert_now();
    report->terminal = isatty(STDERR_FILENO) != 0;
    if (options->json != NULL) {
        report->json = fopen(options->json, "w");
        return (report->json != NULL) || bert_fail("cannot write %s: %s", options->json, strerror(errno));
    }
    return true;
}

static void put_number(FILE *file, const char *key, double value)
{
    fprintf(file, isfinite(value) ? ", \"%s\": %.9g" : ", \"%s\": null", key, value);
}

static void put_bytes(FILE *file, const char *key, uint64_t value)
{
    fprintf(file, ", \"%s\": %llu", key, (unsigned long long)value);
}

static void put_flag(FILE *file, const char *key, bool value)
{
    fprintf(file, ", \"%s\": %s", key, value ? "true" : "false");
}

static void put_times(FILE *file, double step_ms, double compute_ms, double exposed_comm_ms)
{
    put_number(file, "step_ms", step_ms);
    put_number(file, "compute_ms", compute_ms);
    put_number(file, "exposed_comm_ms", exposed_comm_ms);
}

/* x / n, NaN for n = 0 */
static double share(double x, double n)
{
    return (n > 0) ? x / n : NAN;
}

static void put_score(FILE *file, const bert_score_t *score)
{
    put_number(file, "eval_loss", share(score->loss_all, score->n_all));
    put_number(file, "eval_mask_loss", share(score->loss_mask, score->n_mask));
    put_number(file, "eval_mask_acc", share(score->hits_mask, score->n_mask));
    put_number(file, "unigram_entropy", share(score->unigram_mask, score->n_mask));
}

static void write_step(FILE *file, const bert_step_record_t *record)
{
    fprintf(file, "{\"step\": %d, \"phase\": \"%s\"", record->step, record->phase);
    put_number(file, "loss", record->loss);
    put_number(file, "lr", record->lr);
    put_times(file, record->step_ms, record->compute_ms, record->exposed_comm_ms);
    put_bytes(file, "wire_bytes", record->wire_bytes);
    put_bytes(file, "wire_bytes_inter", record->wire_bytes_inter);
    if (record->skipped) {
        put_flag(file, "skipped", true);
    }
    if (record->evaluated) {
        put_score(file, &record->score);
    }
    fprintf(file, "}\n");
    fflush(file);
}

/* A line that is overwritten on a terminal; elsewhere a new one every now and then. */
static void say_progress(bert_report_t *report, const bert_step_record_t *record)
{
    int done = record->step - report->first_step, left = report->n_steps - done;
    double now = bert_now(), left_s = (now - report->started) / done * left;
    char eval[32] = "";

    if (report->eval_loss > 0) {
        snprintf(eval, sizeof(eval), "  held-out %.3f", report->eval_loss);
    }
    if (report->terminal && ((now - report->said > 0.2) || (left == 0))) {
        fprintf(stderr, "\r%-12s step %d/%d  %-10s loss %.3f%s  %.1f ms/step  %.0f s left   %s", report->optimizer,
                record->step, report->first_step + report->n_steps, record->phase, record->loss, eval, record->step_ms,
                left_s, (left == 0) ? "\n" : "");
        report->said = now;
    } else if (!report->terminal && ((now - report->said > SAY_EVERY_S) || (left == 0))) {
        bert_say("%s step %d/%d  %s  loss %.3f%s  %.1f ms/step  %.0f s left", report->optimizer, record->step,
                 report->first_step + report->n_steps, record->phase, record->loss, eval, record->step_ms, left_s);
        report->said = now;
    }
}

void bert_report_step(bert_report_t *report, const bert_step_record_t *record)
{
    if (record->evaluated) {
        report->eval_loss = share(record->score.loss_all, record->score.n_all);
    }
    if (report->json != NULL) {
        write_step(report->json, record);
    }
    if (!report->options->quiet) {
        say_progress(report, record);
    }
}

static void write_final(const bert_report_t *report, const bert_final_record_t *record)
{
    const bert_options_t *options = report->options;
    FILE *file = report->json;

    fprintf(file, "{\"final\": true, \"optimizer\": \"%s\", \"warmup_codec\": \"%s\"", report->optimizer,
            (options->warmup_codec == NULL) ? "f32" : options->warmup_codec);
    fprintf(file, ", \"seed\": %d, \"steps\": %d", options->seed, record->steps);
    fprintf(file, ", \"ranks\": %d, \"nodes\": %d", record->ranks, record->nodes);
    put_number(file, "emulated_gbps", record->emulate_gbps);
    put_score(file, &record->score);
    put_flag(file, "params_identical", record->params_identical);
    fprintf(file, ", \"params_hash\": \"%016llx\"", (unsigned long long)record->params_hash);
    put_bytes(file, "wire_bytes", record->wire_bytes);
    put_bytes(file, "wire_bytes_inter", record->wire_bytes_inter);
    put_bytes(file, "wire_bytes_all", record->wire_bytes_all);
    put_bytes(file, "wire_bytes_inter_all", record->wire_bytes_inter_all);
    put_times(file, record->step_ms, record->compute_ms, record->exposed_comm_ms);
    fprintf(file, ", \"skipped\": %d, \"last_phase\": \"%s\"", record->skipped, record->last_phase);
    if (record->rows_checked) {
        put_flag(file, "unused_rows_equal", record->rows_equal);
    }
    fprintf(file, "}\n");
}

void bert_report_final(bert_report_t *report, const bert_final_record_t *record)
{
    const bert_score_t *score = &record->score;

    if (report->json != NULL) {
        write_final(report, record);
    }
    if (!report->options->quiet) {
        bert_say("%s, seed %d, %d steps: held-out loss %.3f; on [MASK] %.3f (unigram %.3f), accuracy %.3f; %.1f ms a "
                 "step; %.1f MB sent, %.1f MB between nodes, by all ranks; parameters %s",
                 report->optimizer, report->options->seed, record->steps, share(score->loss_all, score->n_all),
                 share(score->loss_mask, score->n_mask), share(score->unigram_mask, score->n_mask),
                 share(score->hits_mask, score->n_mask), record->step_ms, (double)record->wire_bytes_all / 1e6,
                 (double)record->wire_bytes_inter_all / 1e6, record->params_identical ? "identical" : "DIFFER");
    }
}

bool bert_report_close(bert_report_t *report)
{
    bool good = true;

    if (report->json != NULL) {
        good = (ferror(report->json) == 0);
        good = (fclose(report->json) == 0) && good;
        report->json = NULL;
    }
    return good || bert_fail("%s could not be written whole", report->options->json);
}
