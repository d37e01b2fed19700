/* A case of algorithm "exchange" and what a world did with it: filled by replay_exchange.c, judged by
 * replay_exchange_compare.c. */
#ifndef PERF_REPLAY_EXCHANGE_H
#define PERF_REPLAY_EXCHANGE_H

#include "replay.h"

typedef struct replay_frame {
    int64_t phase, bucket, shard, node, chunk, segment;
    size_t bytes, at; /* inside its phase's row */
} replay_frame_t;

typedef struct replay_exchange {
    const case_file_t *file;
    uint32_t n_ranks, n_nodes, n_steps, n_buckets, n_tensors;
    uint64_t n_elems;
    int64_t nodes[REPLAY_MAX_RANKS];
    lnt_codec_t codec;
    uint64_t segment;
    float factor, server_factor;
    const float *input;
    const uint8_t *live;
    replay_frame_t *frames;
    size_t n_frames, phase_bytes[3];

    /* results */
    uint8_t *phases[3];                 /* [1], [2]: [T][phase_bytes] */
    uint32_t *times;                    /* [T][n_frames]: how often a frame was made */
    float *output;                      /* [T][n][N] */
    float *worker_error, *server_error; /* [T][M][N], [T][N] */
    uint8_t *owned;                     /* [M + 1][N]: how many ranks own an error */
    int32_t *wire;                      /* [T][2][n] */
    int32_t *verdict;                   /* [T][n] */
    _Atomic uint32_t unknown_frames;
    _Atomic uint32_t miscounted; /* rounds in which a rank's counters and the layout's formula differ */
} replay_exchange_t;

int replay_exchange_compare(const replay_exchange_t *set, replay_report_t *report);

#endif
