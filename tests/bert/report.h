/* What a run says: JSON lines in a file for programs, one progress line on standard error for people. Rank 0 only. */
#ifndef BERT_REPORT_H
#define BERT_REPORT_H

#include <stdint.h>
#include <stdio.h>

#include "evaluate.h"
#include "options.h"

typedef struct bert_report {
    FILE *json; /* NULL: none */
    const bert_options_t *options;
    const char *optimizer;
    int first_step, n_steps; /* of this run */
    double started, said;    /* seconds */
    bool terminal;
    double eval_loss; /* the last one, 0: none yet */
} bert_report_t;

typedef struct bert_step_record {
    int step; /* from 1 */
    const char *phase;
    bool skipped;
    double loss; /* mean over the targets of this rank */
    double lr, step_ms, compute_ms, exposed_comm_ms;
    uint64_t wire_bytes, wire_bytes_inter; /* sent by this rank */
    bool evaluated;
    bert_score_t score;
} bert_step_record_t;

typedef struct bert_final_record {
    int steps, ranks, nodes;
    double emulate_gbps;
    bert_score_t score;
    bool params_identical;
    uint64_t params_hash;
    uint64_t wire_bytes, wire_bytes_inter;         /* sent by this rank */
    uint64_t wire_bytes_all, wire_bytes_inter_all; /* sent by all ranks */
    double step_ms, compute_ms, exposed_comm_ms;   /* means */
    int skipped;
    const char *last_phase; /* of the last step */
    bool rows_checked, rows_equal;
} bert_final_record_t;

bool bert_report_open(bert_report_t *report, const bert_options_t *options, const char *optimizer, int first_step,
                      int last_step);
void bert_report_step(bert_report_t *report, const bert_step_record_t *record);
void bert_report_final(bert_report_t *report, const bert_final_record_t *record);
/* False after a message if something could not be written. */
bool bert_report_close(bert_report_t *report);

double bert_now(void); /* seconds, monotonic */

#endif
