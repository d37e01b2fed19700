/* linnet-info: what this build is, what works on this machine and why not, every knob, where the ranks would sit, and
 * what a plan would cost (a dry run that talks to nobody). Everything on stdout is for reading; it starts no traffic
 * except with -t in a started world.
 */
#include <stdio.h>

#include <linnet/linnet.h>

#include "info_tool.h"

typedef struct info_config {
    bool version, transports, probes, knobs, topology, config_md;
    info_plan_options_t plan;
} info_config_t;

#define SWITCH(_letter, _name, _field, _help)                                                                          \
    {                                                                                                                  \
        _letter, NULL,                                                                                                 \
        {                                                                                                              \
            .name = _name, .default_text = "off", .help = _help, .offset = offsetof(info_config_t, _field),            \
            .type = LNT_CFG_BOOL                                                                                       \
        }                                                                                                              \
    }
#define VALUE(_name, _argument, _type, _default, _field, _help)                                                        \
    {                                                                                                                  \
        0, _argument,                                                                                                  \
        {                                                                                                              \
            .name = _name, .default_text = _default, .help = _help, .offset = offsetof(info_config_t, _field),         \
            .type = _type                                                                                              \
        }                                                                                                              \
    }

static const tool_option_t options[] = {
    SWITCH('v', "version", version, "version of the library and how it was built"),
    SWITCH('d', "devices", transports, "transports, whether they can be used here, and why not"),
    SWITCH('b', "backends", probes, "what the operating system and optional parts offer: the verdict of a try"),
    SWITCH('c', "config", knobs, "every LINNET_* variable: module, default, current value, help"),
    SWITCH('t', "topology", topology,
           "ranks and nodes as this process sees them: of the world the environment describes, or of one rank"),
    SWITCH(0, "config-md", config_md, "docs/config.md, from the tables"),
    VALUE("plan", "FILE", LNT_CFG_STRING, "", plan.file, "dry run of the tensors in FILE: bytes, memory, time"),
    VALUE("ranks", "N", LNT_CFG_U32, "4", plan.ranks, "dry run: ranks"),
    VALUE("nodes", "M|a,b,..", LNT_CFG_STRING, "", plan.nodes,
          "dry run: nodes, or the node of each rank; one per rank if not given"),
    VALUE("optim", "NAME", LNT_CFG_STRING, "onebit_adam", plan.optim, "dry run: optimizer"),
    VALUE("options", "k=v,..", LNT_CFG_STRING, "", plan.options, "dry run: options of the optimizer"),
    VALUE("bucket-bytes", "BYTES", LNT_CFG_BYTES, "0", plan.bucket_bytes,
          "dry run: bucket size; 0: LINNET_BUCKET_BYTES"),
    VALUE("segment-bytes", "BYTES", LNT_CFG_BYTES, "0", plan.segment_bytes,
          "dry run: segment size; 0: LINNET_SEGMENT_BYTES"),
    {0,
     "X",
     {.name = "gbps",
      .default_text = "1",
      .help = "dry run: speed of a node's link in Gbit/s",
      .offset = offsetof(info_config_t, plan.gbps),
      .type = LNT_CFG_F64,
      .min = 1e-6,
      .max = 1e6}},
    {0, NULL, {.name = NULL}},
};

static const tool_t tool = {
    .name = INFO_NAME,
    .purpose = "facts about linnet on this machine. Without options: -v -d -b -t",
    .options = options,
    .notes = "A plan file has one tensor per line, in the order in which backward finishes them:\n"
             "  name count [group] [f32|bf16|f16] [non_freeze]     # comment\n"
             "The dry run makes the optimizer's state of one rank and so needs its memory.\n"
             "Exit code: 0, 1 when a section failed, 2 for a wrong command line.",
};

static void print_all_by_default(info_config_t *config)
{
    if (config->version || config->transports || config->probes || config->knobs || config->topology ||
        config->config_md || config->plan.file != NULL) {
        return;
    }
    config->version = config->transports = config->probes = config->topology = true;
}

static int run_sections(const info_config_t *config)
{
    int failed = 0;

    failed |= config->version ? info_version() : 0;
    failed |= config->transports ? info_transports() : 0;
    failed |= config->probes ? info_probes() : 0;
    failed |= config->knobs ? info_knobs() : 0;
    failed |= config->topology ? info_topology() : 0;
    failed |= config->config_md ? info_config_md() : 0;
    failed |= (config->plan.file != NULL) ? info_plan(&config->plan) : 0;
    return failed;
}

int main(int argc, char **argv)
{
    info_config_t config = {.version = false};
    bool help;
    int code = tool_read_options(&tool, argc, argv, &config, &help);

    if (code == TOOL_OK && !help) {
        print_all_by_default(&config);
        code = run_sections(&config);
    }
    tool_release(&tool, &config);
    return tool_finish(INFO_NAME, code);
}
