/* linnet-ckpt: looks into saved states, checks them, and prepares them for a world of other ranks and nodes. Works on
 * files that hold what lnt_optim_state_export wrote, one per rank (docs/state_format.md); talks to nobody.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt_tool.h"

static const tool_option_t options[] = {
    {'j',
     NULL,
     {.name = "json",
      .default_text = "off",
      .help = "one JSON object per line instead of text",
      .offset = offsetof(ckpt_config_t, json),
      .type = LNT_CFG_BOOL}},
    {'n',
     "N",
     {.name = "ranks",
      .default_text = "0",
      .help = "repartition: ranks of the new world",
      .offset = offsetof(ckpt_config_t, ranks),
      .type = LNT_CFG_U32}},
    {0,
     "M|a,b,..",
     {.name = "nodes",
      .default_text = "",
      .help = "repartition: nodes of the new world, or the node of each rank; one per rank if not given",
      .offset = offsetof(ckpt_config_t, nodes),
      .type = LNT_CFG_STRING}},
    {'o',
     "NAME",
     {.name = "out",
      .default_text = "",
      .help = "repartition: files to write; {} stands for the rank, else .RANK is appended",
      .offset = offsetof(ckpt_config_t, out),
      .type = LNT_CFG_STRING}},
    {0, NULL, {.name = NULL}},
};

static const struct {
    const char *name;
    int (*run)(const ckpt_config_t *config, const ckpt_files_t *files);
} commands[] = {{"info", ckpt_info}, {"verify", ckpt_verify}, {"repartition", ckpt_repartition}};

enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static const tool_t tool = {
    .name = CKPT_NAME,
    .purpose = "saved states. linnet-ckpt info|verify|repartition FILE... [options]",
    .options = options,
    .notes =
        "  info         header, sections, tensors and norms of errors of every file\n"
        "  verify       every checksum, and whether the files are one save, whole\n"
        "  repartition  the same state for another world: give the files of all ranks. What error feedback holds\n"
        "               back is kept (E' = E + the mean of e, rounded once), its sum before and after is printed.\n"
        "               Each file written is loaded by its rank with lnt_optim_state_import.\n"
        "Exit code: 0, 1 when a file is bad or missing, 2 for a wrong command line.",
};

static int run_command(const ckpt_config_t *config, const char *const *operands, uint32_t n)
{
    const char *names[N_COMMANDS];
    ckpt_files_t files = {.n = 0};
    int code;

    for (size_t i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i].name;
    if (n < 2) {
        (void)fprintf(stderr, "%s: give a command and files (%s --help)\n", CKPT_NAME, CKPT_NAME);
        return TOOL_USAGE;
    }
    code = tool_check_list(&tool, "command", operands[0], names, N_COMMANDS);
    if (code != TOOL_OK) return code;
    code = ckpt_files_open(&files, operands + 1, n - 1);
    for (size_t i = 0; i < N_COMMANDS && code == TOOL_OK; i++) {
        if (strcmp(operands[0], names[i]) != 0) continue;
        code = commands[i].run(config, &files);
        break;
    }
    ckpt_files_close(&files);
    return code;
}

int main(int argc, char **argv)
{
    const char **operands = calloc((size_t)argc + 1, sizeof(*operands));
    ckpt_config_t config = {.json = false};
    uint32_t n_operands = 0;
    bool help = false;
    int code = TOOL_FAILED;

    if (operands != NULL) {
        code = tool_read_command(&tool, argc, argv, &config, &help, operands, &n_operands);
        if (code == TOOL_OK && !help) code = run_command(&config, operands, n_operands);
        tool_release(&tool, &config);
    }
    free(operands);
    return tool_finish(CKPT_NAME, code);
}
