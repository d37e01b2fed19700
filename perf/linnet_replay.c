/* linnet-replay: runs a stored case through the library's own exchange, with a world of threads, and compares
 * everything the case holds. Each algorithm is a row.
 *
 * Exit: 0 the case is reproduced, 1 something deviates, 2 the command line or the case is wrong, 77 not supported.
 */
#include "replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *algorithm;
    const char *semantics; /* mode_semantics of the case, "" where it says nothing */
    const char *doc;
    replay_fn_t replay;
} algorithms[] = {
    {"exchange", "", "the two-phase exchange of the executable model, byte by byte", replay_exchange},
    {"compressed_allreduce", "", "the reference's compressed all-reduce: bits exactly, values within tolerances",
     replay_allreduce},
    {"adam", "", "torch's Adam and AMSGrad", replay_optimizer},
    {"adamw", "", "torch's AdamW", replay_optimizer},
    {"lamb_timm", "", "timm's LAMB, by options of lamb", replay_optimizer},
    {"lamb_torch_optimizer", "", "torch_optimizer's LAMB, by options of lamb", replay_optimizer},
    {"came", "", "CAME", replay_optimizer},
    {"onebit_adam", "", "the reference's 1-bit Adam, by compat=deepspeed", replay_optimizer},
    {"onebit_lamb", "", "the reference's 1-bit LAMB, by compat=deepspeed", replay_optimizer},
    {"zero_one_adam", "", "the reference's 0/1 Adam, by compat=deepspeed", replay_optimizer},
    {"onebit_adam", "corrected", "1-bit Adam of the executable model (mode_semantics corrected), byte by byte",
     replay_model_adam},
};

enum { N_ALGORITHMS = sizeof(algorithms) / sizeof(algorithms[0]) };

static int usage(FILE *out)
{
    fprintf(
        out,
        "usage: linnet-replay CASE_DIR [--json FILE] [--transport loop|shm]\n\n"
        "Runs the case in CASE_DIR (case.json, data.bin) and prints the largest deviation of every array and step.\n\n"
        "algorithms:\n");
    for (size_t i = 0; i < N_ALGORITHMS; ++i) {
        fprintf(out, "  %-22s %s\n", algorithms[i].algorithm, algorithms[i].doc);
    }
    fprintf(out, "\nexit: 0 reproduced, 1 deviates, 2 wrong command line or case, 77 not supported\n");
    return (out == stdout) ? REPLAY_OK : REPLAY_USAGE;
}

/* Two authors may have cases of one algorithm. */
static bool is_row_of(size_t row, const char *algorithm, const char *semantics)
{
    return (strcmp(algorithms[row].algorithm, algorithm) == 0) && (strcmp(algorithms[row].semantics, semantics) == 0);
}

static int replay(const case_file_t *file, const char *transport, const char *json_path)
{
    replay_report_t report = {.complete = true};
    char algorithm[64], name[128], semantics[32] = "";
    int code = REPLAY_UNSUPPORTED;

    if (!case_text(file, "algorithm", algorithm, sizeof(algorithm)) || !case_text(file, "case", name, sizeof(name))) {
        fprintf(stderr, "linnet-replay: case.json has no algorithm or no name\n");
        return REPLAY_USAGE;
    }
    (void)case_text(file, "mode_semantics", semantics, sizeof(semantics));
    snprintf(report.problem, sizeof(report.problem), "algorithm %s is not there yet", algorithm);
    for (size_t i = 0; i < N_ALGORITHMS; ++i) {
        if (is_row_of(i, algorithm, semantics)) {
            report.problem[0] = '\0';
            code = algorithms[i].replay(file, &(replay_how_t){algorithm, transport}, &report);
        }
    }
    if (report.problem[0] != '\0') {
        fprintf(stderr, "linnet-replay: %s: %s\n", name, report.problem);
    }
    if (code == REPLAY_OK) {
        code = replay_report_finish(&report, name, json_path);
    }
    free(report.rows);
    return code;
}

int main(int argc, char **argv)
{
    const char *directory = NULL, *json_path = NULL, *transport = "loop";
    case_file_t file;
    int code;

    for (int i = 1; i < argc; ++i) {
        if ((strcmp(argv[i], "--help") == 0) || (strcmp(argv[i], "-h") == 0)) {
            return usage(stdout);
        }
        if ((strcmp(argv[i], "--json") == 0) && (i + 1 < argc)) {
            json_path = argv[++i];
        } else if ((strcmp(argv[i], "--transport") == 0) && (i + 1 < argc)) {
            transport = argv[++i];
        } else if ((directory == NULL) && (argv[i][0] != '-')) {
            directory = argv[i];
        } else {
            return usage(stderr);
        }
    }
    if ((directory == NULL) || ((strcmp(transport, "loop") != 0) && (strcmp(transport, "shm") != 0))) {
        return usage(stderr);
    }
    if (!case_open(&file, directory)) {
        fprintf(stderr, "linnet-replay: %s\n", file.problem);
        case_close(&file);
        return REPLAY_USAGE;
    }
    code = replay(&file, transport, json_path);
    case_close(&file);
    return code;
}
