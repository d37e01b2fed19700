/* Fuzz target: the frame header as a receiver reads it, lnt_frame_header_valid and then the executor's sink. Any
 * headers from any rank in any order are taken, kept for later or refused by name; the room given for a body holds what
 * its header announces.
 *
 * Input: records of 1 byte source, 1 byte number of the expected frame, and pairs of (offset, byte) that go over this
 * frame's right header, ended by an offset of 255.
 */
#include "../../src/base/error.h"
#include "../../src/coll/exec.h"
#include "fuzz_target.h"

enum { N_RANKS = 3, BUCKETS = 2, FRAMES = 4, RECORDS = 64, SEQUENCE = 5, LAYOUT = 77, HYPER = 78 };

static lnt_graph_t graphs[BUCKETS], *graph_list[BUCKETS] = {&graphs[0], &graphs[1]};
static _Atomic uint8_t ready[BUCKETS];
static lnt_job_t job;
static bool failed;

static void take_record(void *arg, const lnt_error_info_t *record)
{
    (void)arg;
    fuzz_check(record->status == LNT_ERR_MISMATCH || record->status == LNT_ERR_CORRUPT, "the refusal has its status");
    fuzz_check(record->cause[0] != '\0', "the refusal has a cause");
    failed = true;
}

static void ignore_wake(void *arg)
{
    (void)arg;
}

static lnt_frame_header_t right_header(uint32_t bucket, uint32_t k)
{
    return (lnt_frame_header_t){.magic = LNT_FRAME_MAGIC,
                                .version = LNT_FRAME_VERSION,
                                .phase = (uint8_t)(k % 4),
                                .codec = (uint8_t)k,
                                .sequence = SEQUENCE,
                                .layout_hash = LAYOUT,
                                .hyper_hash = HYPER,
                                .bucket = bucket,
                                .shard = (uint16_t)k,
                                .source = 1 + k % 2,
                                .segment = k,
                                .block = 64,
                                .count = 100 * k,
                                .section_bytes = k,
                                .payload_bytes = 20 * k};
}

static void build_graph(uint32_t bucket)
{
    lnt_graph_builder_t *builder;
    fuzz_check(lnt_graph_begin(&builder) == LNT_OK, "a graph can be begun");
    for (uint32_t k = 0; k < FRAMES; k++) {
        lnt_frame_header_t header = right_header(bucket, k);
        uint32_t frame = lnt_graph_add_frame(builder, header.payload_bytes, header.section_bytes);
        lnt_graph_set_header(builder, frame, &header);
        (void)lnt_graph_add_recv(
            builder, frame, header.source,
            lnt_graph_key(header.phase, header.shard, header.chunk, header.source, header.segment));
    }
    fuzz_check(lnt_graph_finish(builder, &graphs[bucket], NULL) == LNT_OK, "a graph can be finished");
    graphs[bucket].bucket = bucket;
}

static lnt_exec_t *start(void)
{
    lnt_exec_params_t params = {.n_ranks = N_RANKS, .wake = ignore_wake, .fail = take_record};
    lnt_exec_t *exec;
    failed = false;
    memset(&job, 0, sizeof(job));
    memset(graphs, 0, sizeof(graphs));
    fuzz_check(lnt_exec_create(&params, &exec) == LNT_OK, "an executor can be created");
    for (uint32_t b = 0; b < BUCKETS; b++)
        build_graph(b);
    fuzz_check(lnt_exec_reserve(exec, BUCKETS * FRAMES) == LNT_OK, "there is room for the job");
    job.graphs = graph_list;
    job.n_graphs = BUCKETS;
    job.ready = ready;
    job.sequence = SEQUENCE;
    job.layout_hash = LAYOUT;
    job.hyper_hash = HYPER;
    snprintf(job.what, sizeof(job.what), "a fuzzed job");
    lnt_exec_post(exec, &job);
    (void)lnt_exec_progress(exec);
    for (uint32_t b = 0; b < BUCKETS; b++)
        lnt_job_ready(exec, &job, b);
    return exec;
}

static lnt_frame_header_t next_header(fuzz_input_t *in, uint32_t *source_p)
{
    *source_p = (uint32_t)fuzz_number(in, 1) % N_RANKS;
    uint32_t which = (uint32_t)fuzz_number(in, 1);
    lnt_frame_header_t header = right_header(which / FRAMES % BUCKETS, which % FRAMES);
    while (in->left) {
        uint64_t offset = fuzz_number(in, 1);
        if (offset == 255) break;
        ((uint8_t *)&header)[offset % sizeof(header)] = (uint8_t)fuzz_number(in, 1);
    }
    return header;
}

/* As a transport does it: header, room, body, arrival. */
static void receive(const lnt_sink_t *sink, uint32_t source, const lnt_frame_header_t *header)
{
    void *body = NULL;
    lnt_status_t status = sink->locate(sink->arg, source, header, &body);
    fuzz_check(status == LNT_OK || status == LNT_IN_PROGRESS || failed, "a refusal is reported");
    if (status != LNT_OK) {
        fuzz_check(body == NULL, "no room without a place");
        return;
    }
    memset(body, 0x5a, (size_t)header->payload_bytes + header->section_bytes);
    sink->arrived(sink->arg, source, header, body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};
    lnt_exec_t *exec = start();
    lnt_sink_t sink;
    lnt_exec_sink(exec, &sink);
    for (int k = 0; k < RECORDS && in.left && !failed; k++) {
        uint32_t source;
        lnt_frame_header_t header = next_header(&in, &source);
        if (lnt_frame_header_valid(&header)) receive(&sink, source, &header);
        (void)lnt_exec_progress(exec);
    }
    lnt_exec_fail(exec, lnt_last_error());
    fuzz_check(atomic_load(&job.state) == LNT_JOB_DONE, "the job ends");
    for (uint32_t b = 0; b < BUCKETS; b++)
        lnt_graph_release(&graphs[b]);
    lnt_exec_unreserve(exec, BUCKETS * FRAMES);
    lnt_exec_destroy(exec);
    return 0;
}
