/* The LINNET_* variables of contexts and communicators, and the list of all tables of the library.
 *
 * Help, defaults, docs/config.md, linnet-info and the check for unknown names are read from these rows.
 */
#include "core.h"

#define ROW(_name, _default, _type, _field, _help)                                                                     \
    {                                                                                                                  \
        .name = (_name), .default_text = (_default), .help = (_help), .offset = offsetof(lnt_core_config_t, _field),   \
        .type = (_type)                                                                                                \
    }
#define ROW_IN(_name, _default, _type, _field, _min, _max, _help)                                                      \
    {                                                                                                                  \
        .name = (_name), .default_text = (_default), .help = (_help), .offset = offsetof(lnt_core_config_t, _field),   \
        .type = (_type), .min = (_min), .max = (_max)                                                                  \
    }

enum { MS_PER_DAY = 24 * 3600 * 1000 };

const lnt_cfg_row_t lnt_core_config_rows[] = {
    ROW_IN("TIMEOUT", "10min", LNT_CFG_TIME_MS, timeout_ms, 50, MS_PER_DAY,
           "a collective that makes no progress for this long fails on every rank with the name of the rank that "
           "everybody waits for; must be equal on all ranks"),
    ROW_IN("INIT_TIMEOUT", "2min", LNT_CFG_TIME_MS, init_timeout_ms, 50, MS_PER_DAY,
           "bound of every step of the creation of a communicator, the start of slow ranks included"),
    ROW_IN("STALL_WARN", "30s", LNT_CFG_TIME_MS, stall_ms, 10, MS_PER_DAY,
           "warn after this long without progress, naming the rank and the frame that is missing"),
    ROW("NODE", "", LNT_CFG_STRING, node,
        "node of this rank, any text: ranks with equal text share a node, so one machine can play several; empty: the "
        "host"),
    ROW("TLS", "", LNT_CFG_STRING, transports,
        "transports that may be used, e.g. shm,ucx; ^ in front excludes those listed; empty: all. Every pair of ranks "
        "takes "
        "the first of loop, shm, ucx that both may use and that reaches"),
    ROW_IN("EMULATE_GBPS", "0", LNT_CFG_F64, emulate_gbps, 0, 1e6,
           "emulate a slow link: what every node sends to others is limited to this many Gbit/s; 0: off; must be equal "
           "on all "
           "ranks"),
    ROW("SOCKET_IFNAME", "", LNT_CFG_STRING, socket_ifname,
        "network interface of the control sockets and of the start-up store, e.g. eth0; empty: the one that reaches "
        "the "
        "others"),
    ROW("NET_DEVICES", "", LNT_CFG_STRING, net_devices,
        "devices for the ucx transport, e.g. mlx5_0:1; empty: its own choice"),
    ROW_IN("RING_BYTES", "1m", LNT_CFG_BYTES, ring_bytes, 4096, 1 << 30,
           "shared memory per direction between two ranks of a host"),
    ROW_IN("BUCKET_BYTES", "25m", LNT_CFG_BYTES, bucket_bytes, 1024, 1e12,
           "bytes of f32 gradient per bucket of a plan; a bucket is sent when its last gradient is ready; changes no "
           "result"),
    ROW_IN("SEGMENT_BYTES", "1m", LNT_CFG_BYTES, segment_bytes, 1024, 1 << 30,
           "bytes of f32 per segment: encode, wire and decode of different segments overlap; changes no result"),
    ROW_IN("MAX_SKIPS", "20", LNT_CFG_U32, max_skips, 1, 4e9,
           "this many skipped (non-finite) steps in a row are an error: the training has diverged"),
    {.name = "ERROR_DTYPE",
     .default_text = "f32",
     .help =
         "how plans keep error feedback between steps: f32, bf16 or int8 (4, 2 or 1.06 bytes per element and array); "
         "fewer bytes round it; must be equal on all ranks",
     .offset = offsetof(lnt_core_config_t, error_dtype),
     .type = LNT_CFG_ENUM,
     .words = lnt_error_words},
    ROW("CHECK_EVERY", "0", LNT_CFG_U32, check_every,
        "compare hashes of the parameters and moments of all ranks every so many steps and name the first tensor that "
        "differs; "
        "0: never"),
    ROW("HEALTH_EVERY", "100", LNT_CFG_U32, health_every,
        "measure the coding of a program (lnt_plan_get_health, warnings) in its first and then in every so many "
        "committed steps; 0: never; changes no result"),
    ROW_IN("SPIN_US", "20", LNT_CFG_U32, spin_us, 0, 1000000,
           "look for work this long before sleeping; taken as 0 when local ranks and their progress threads exceed the "
           "cores"),
    ROW("PROGRESS_THREAD", "on", LNT_CFG_BOOL, progress_thread,
        "a thread of the library moves data while the caller computes; off: only inside calls that wait or test"),
    ROW("PROGRESS_CPUS", "", LNT_CFG_STRING, cpus,
        "cores the progress thread and its helpers may run on, e.g. 2,4-5; empty: any"),
    ROW_IN(
        "THREADS", "0", LNT_CFG_U32, threads, 0, LNT_POOL_THREADS_MAX,
        "threads of a rank that encode, add and measure: the progress thread and helpers beside it; 0: cores of this "
        "process (at most those of LINNET_PROGRESS_CPUS) / ranks on this host, at least 1, at most 4, and 1 without a "
        "progress thread; changes no result"),
    ROW_IN("THREAD_MIN_BYTES", "128k", LNT_CFG_BYTES, thread_bytes, 4, 1e12,
           "segments of fewer bytes of f32 are not worth a helper; changes no result"),
    {.name = NULL},
};
