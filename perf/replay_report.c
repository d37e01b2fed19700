/* The report of a replay: deviations of arrays and steps, compared, printed, written as JSON. */
#include "replay.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common_json.h"

void replay_report_add(replay_report_t *report, const char *array, size_t step, double deviation, double tolerance)
{
    if (report->n_rows == report->room) {
        size_t room = (report->room == 0) ? 64 : 2 * report->room;
        replay_row_t *rows = realloc(report->rows, room * sizeof(*rows));

        if (rows == NULL) {
            report->complete = false;
            return;
        }
        report->rows = rows;
        report->room = room;
    }
    report->rows[report->n_rows] = (replay_row_t){.step = step, .deviation = deviation, .tolerance = tolerance};
    snprintf(report->rows[report->n_rows].array, sizeof(report->rows[0].array), "%s", array);
    ++report->n_rows;
}

static bool is_good(const replay_row_t *row)
{
    return row->deviation <= row->tolerance;
}

static void write_json(const replay_report_t *report, const char *case_name, int code, FILE *out)
{
    fprintf(out, "{");
    json_text(out, "case", case_name);
    json_text(out, "problem", report->problem);
    fprintf(out, "\"passed\": %s, \"rows\": [", (code == REPLAY_OK) ? "true" : "false");
    for (size_t i = 0; i < report->n_rows; ++i) {
        const replay_row_t *row = &report->rows[i];

        fprintf(out, "%s\n{\"array\": \"%s\", \"step\": %zu, \"deviation\": ", (i == 0) ? "" : ",", row->array,
                row->step);
        if (isfinite(row->deviation)) {
            fprintf(out, "%.9g", row->deviation);
        } else {
            fprintf(out, "null");
        }
        fprintf(out, ", \"tolerance\": %.9g, \"good\": %s}", row->tolerance, is_good(row) ? "true" : "false");
    }
    fprintf(out, "\n]}\n");
}

int replay_report_finish(const replay_report_t *report, const char *case_name, const char *json_path)
{
    size_t n_bad = 0;
    int code;
    FILE *json;

    printf("# %-20s %5s %14s %12s\n", "array", "step", "deviation", "tolerance");
    for (size_t i = 0; i < report->n_rows; ++i) {
        const replay_row_t *row = &report->rows[i];

        printf("  %-20s %5zu %14.6g %12.6g%s\n", row->array, row->step, row->deviation, row->tolerance,
               is_good(row) ? "" : "  <- deviates");
        n_bad += !is_good(row);
    }
    code = ((n_bad == 0) && report->complete && (report->n_rows > 0)) ? REPLAY_OK : REPLAY_DEVIATES;
    printf("%s: %zu rows, %zu beyond tolerance\n", case_name, report->n_rows, n_bad);
    if (json_path != NULL) {
        json = fopen(json_path, "w");
        if (json == NULL) {
            fprintf(stderr, "linnet-replay: %s cannot be written\n", json_path);
            return REPLAY_USAGE;
        }
        write_json(report, case_name, code, json);
        fclose(json);
    }
    return code;
}

double replay_bytes_differ(const void *got, const void *want, size_t bytes)
{
    const unsigned char *a = got, *b = want;
    size_t n = 0;

    for (size_t i = 0; i < bytes; ++i) {
        n += (a[i] != b[i]);
    }
    return (double)n;
}

double replay_bits_differ(const void *got, const void *want, size_t bytes)
{
    const unsigned char *a = got, *b = want;
    double n = 0;

    for (size_t i = 0; i < bytes; ++i) {
        n += __builtin_popcount((unsigned)(a[i] ^ b[i]));
    }
    return n;
}

void replay_turn_bits(uint8_t *to, const uint8_t *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; ++i) {
        to[i] = 0;
        for (int bit = 0; bit < 8; ++bit) {
            to[i] |= (uint8_t)((from[i] >> bit & 1) << (7 - bit));
        }
    }
}

double replay_floats_differ(const void *got, const void *want, size_t count, replay_equal_t equal)
{
    size_t n = 0;

    for (size_t i = 0; i < count; ++i) {
        float a, b;

        memcpy(&a, (const unsigned char *)got + i * sizeof(a), sizeof(a));
        memcpy(&b, (const unsigned char *)want + i * sizeof(b), sizeof(b));
        n += (memcmp(&a, &b, sizeof(a)) != 0) && !((equal >= REPLAY_NANS_EQUAL) && isnan(a) && isnan(b)) &&
             !((equal == REPLAY_WILD_EQUAL) && !isfinite(b));
    }
    return (double)n;
}

double replay_largest(const float *got, const float *want, size_t count, double unit)
{
    double largest = 0;

    for (size_t i = 0; i < count; ++i) {
        double difference = fabs((double)got[i] - (double)want[i]), base = fmax(fabs((double)want[i]), unit);

        if (!(difference <= base * 1e300)) { /* NaN, or something where nothing should be */
            return INFINITY;
        }
        largest = fmax(largest, (base > 0) ? difference / base : 0);
    }
    return largest;
}
