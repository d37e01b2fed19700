/* lnt_bootstrap_env: the environment variables of torchrun and the like, over the TCP store. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "store.h"

typedef struct lnt_boot_config {
    char *secret;
    char *secret_file;
    char *module_dir;
} lnt_boot_config_t;

const lnt_cfg_row_t lnt_boot_config_rows[] = {
    {"SECRET", "", "shared secret of the environment bootstrap; never printed. Protects the start-up, not the payload",
     offsetof(lnt_boot_config_t, secret), LNT_CFG_STRING, NULL, 0, 0},
    {"SECRET_FILE", "", "file whose first line is the shared secret; used when LINNET_SECRET is not set",
     offsetof(lnt_boot_config_t, secret_file), LNT_CFG_STRING, NULL, 0, 0},
    {"MODULE_DIR", "", "folder of the modules (liblinnet_ucx.so, liblinnet_auth.so); default: beside the library",
     offsetof(lnt_boot_config_t, module_dir), LNT_CFG_STRING, NULL, 0, 0},
    {NULL, NULL, NULL, 0, 0, NULL, 0, 0}};

static lnt_status_t env_number(const char *name, uint64_t max, uint32_t *value_p)
{
    const char *text = lnt_config_getenv(name);
    unsigned long long value;
    char *end;

    if (text == NULL) {
        return lnt_error(LNT_ERR_CONFIG, "start with torchrun, or set MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE",
                         "%s is not set", name);
    }
    value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || value > max) {
        return lnt_error(LNT_ERR_CONFIG, "give a plain decimal number", "%s=%s is not a number from 0 to %llu", name,
                         text, (unsigned long long)max);
    }
    *value_p = (uint32_t)value;
    return LNT_OK;
}

static lnt_status_t read_params(const lnt_context_t *context, lnt_store_params_t *params)
{
    uint32_t port;

    LNT_TRY(env_number("RANK", UINT32_MAX - 1, &params->rank));
    LNT_TRY(env_number("WORLD_SIZE", UINT32_MAX, &params->n_ranks));
    LNT_TRY(env_number("MASTER_PORT", 65535, &port));
    params->port = (uint16_t)port;
    params->address = lnt_config_getenv("MASTER_ADDR");
    params->timeout_ms = context->config.init_timeout_ms;
    if (params->address == NULL || params->address[0] == '\0') {
        return lnt_error(LNT_ERR_CONFIG, "set MASTER_ADDR to the host of rank 0", "MASTER_ADDR is not set");
    }
    if (port == 0 || params->n_ranks == 0 || params->rank >= params->n_ranks) {
        return lnt_error(LNT_ERR_CONFIG, "RANK counts from 0 to WORLD_SIZE - 1, and MASTER_PORT from 1",
                         "RANK %u, WORLD_SIZE %u, MASTER_PORT %u do not fit", params->rank, params->n_ranks, port);
    }
    return LNT_OK;
}

/* First line of the secret file. The text of errors names the file, never what is in it. */
static lnt_status_t read_secret_file(const char *path, char **secret_p)
{
    char line[512];
    FILE *file = fopen(path, "re");

    if (file == NULL || fgets(line, sizeof(line), file) == NULL) {
        if (file != NULL) {
            fclose(file);
        }
        return lnt_error(LNT_ERR_CONFIG, "make the file readable, with the secret in its first line",
                         "LINNET_SECRET_FILE %s cannot be read or is empty", path);
    }
    fclose(file);
    line[strcspn(line, "\r\n")] = '\0';
    *secret_p = lnt_strdup(line, "secret");
    explicit_bzero(line, sizeof(line));
    return *secret_p == NULL ? LNT_ERR_NO_MEMORY : LNT_OK;
}

static int store_gather(void *arg, const void *input, void *output, size_t bytes)
{
    const lnt_status_t status = lnt_store_allgather(arg, input, output, bytes);

    return status < 0 ? (int)status : 0; /* with its record: it names the rank that is missing */
}

static void store_destroy(void *arg)
{
    lnt_store_close(arg);
}

static lnt_status_t open_store(const lnt_context_t *context, lnt_boot_config_t *config, lnt_store_params_t *params,
                               lnt_store_t **store_p)
{
    LNT_TRY(read_params(context, params));
    if (config->secret == NULL && config->secret_file != NULL) {
        LNT_TRY(read_secret_file(config->secret_file, &config->secret));
    }
    params->secret = config->secret;
    return lnt_store_open(params, store_p);
}

lnt_status_t lnt_bootstrap_env(lnt_context_t *context, lnt_bootstrap_t *bootstrap)
{
    lnt_boot_config_t config = {0};
    lnt_store_params_t params = {0};
    lnt_store_t *store = NULL;
    lnt_status_t status;

    LNT_CHECK_ARG(context != NULL && bootstrap != NULL);
    lnt_log_set_current(context->logger);
    LNT_TRY(lnt_config_from_env(lnt_boot_config_rows, &config));
    status = open_store(context, &config, &params, &store);
    if (config.secret != NULL) {
        explicit_bzero(config.secret, strlen(config.secret));
    }
    lnt_config_release(lnt_boot_config_rows, &config);
    if (status < 0) {
        return status;
    }
    *bootstrap = (lnt_bootstrap_t){.struct_size = sizeof(*bootstrap),
                                   .rank = params.rank,
                                   .n_ranks = params.n_ranks,
                                   .allgather = store_gather,
                                   .arg = store,
                                   .destroy = store_destroy};
    return LNT_OK;
}
