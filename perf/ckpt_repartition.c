/* linnet-ckpt repartition: the files of another world. All are written beside their places first; what was there before
 * stays until all are whole. */
#include "ckpt_tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common_nodes.h"

enum { PATH_BYTES = 4096 };

static int complain(const char *what, const char *why)
{
    (void)fprintf(stderr, "%s: %s: %s\n", CKPT_NAME, what, why);
    return TOOL_FAILED;
}

/* {} in the name stands for the rank; without it ".rank" is appended. */
static bool name_of(const char *pattern, uint32_t rank, const char *suffix, char path[PATH_BYTES])
{
    const char *place = strstr(pattern, "{}");
    int n = place != NULL
                ? snprintf(path, PATH_BYTES, "%.*s%u%s%s", (int)(place - pattern), pattern, rank, place + 2, suffix)
                : snprintf(path, PATH_BYTES, "%s.%u%s", pattern, rank, suffix);

    return n > 0 && n < PATH_BYTES;
}

static int write_file(const char *path, const void *data, uint64_t bytes)
{
    FILE *file = fopen(path, "wb");
    bool good = file != NULL && fwrite(data, 1, bytes, file) == bytes;

    good = file != NULL && fflush(file) == 0 && fsync(fileno(file)) == 0 && good;
    if (file != NULL) good = fclose(file) == 0 && good;
    return good ? TOOL_OK : complain(path, strerror(errno));
}

/* Where nothing changes the file is copied as it is. */
static int write_rank(const lnt_state_save_t *save, const node_map_t *map, uint32_t rank, const ckpt_files_t *files,
                      const char *path)
{
    uint64_t bytes;
    void *blob;
    int code;

    for (uint32_t i = 0; i < files->n && lnt_state_same_nodes(save, map->n_ranks, map->node_of); i++) {
        const lnt_state_header_t *header = files->blobs[i];
        if (header->rank == rank) return write_file(path, files->blobs[i], files->bytes[i]);
    }
    if (lnt_state_repartition(save, map->n_ranks, map->node_of, rank, NULL, &bytes) < 0)
        return tool_complain(CKPT_NAME);
    blob = malloc(bytes);
    if (blob == NULL) return complain(path, "out of memory");
    code = lnt_state_repartition(save, map->n_ranks, map->node_of, rank, blob, &bytes) < 0
               ? tool_complain(CKPT_NAME)
               : write_file(path, blob, bytes);
    free(blob);
    return code;
}

static int write_all(const ckpt_config_t *config, const lnt_state_save_t *save, const node_map_t *map,
                     const ckpt_files_t *files)
{
    char path[PATH_BYTES], work[PATH_BYTES];
    int code = TOOL_OK;

    for (uint32_t r = 0; r < map->n_ranks && code == TOOL_OK; r++)
        code = name_of(config->out, r, ".work", work) ? write_rank(save, map, r, files, work)
                                                      : complain(config->out, "name too long");
    for (uint32_t r = 0; r < map->n_ranks; r++) {
        if (!name_of(config->out, r, "", path) || !name_of(config->out, r, ".work", work)) continue;
        if (code != TOOL_OK) {
            (void)unlink(work);
        } else if (rename(work, path) != 0) {
            code = complain(path, strerror(errno));
        }
    }
    return code;
}

static int print_move(const ckpt_config_t *config, const lnt_state_save_t *save, const node_map_t *map)
{
    const bool same = lnt_state_same_nodes(save, map->n_ranks, map->node_of);
    lnt_state_mass_t mass;

    if (!ckpt_total_mass(save, &mass)) return TOOL_FAILED;
    if (same) mass.after = mass.before;
    if (config->json) {
        printf("{\"from_ranks\": %u, \"from_nodes\": %u, \"ranks\": %u, \"nodes\": %u, \"copied\": %s", save->world,
               save->blobs[0].header.n_nodes, map->n_ranks, map->n_nodes, same ? "true" : "false");
    } else {
        printf("%u ranks on %u nodes -> %u ranks on %u nodes%s\n", save->world, save->blobs[0].header.n_nodes,
               map->n_ranks, map->n_nodes, same ? ": the same world, files copied" : "");
    }
    ckpt_print_mass(config, &mass);
    return TOOL_OK;
}

static int read_map(const ckpt_config_t *config, node_map_t *map)
{
    char why[256];

    if (config->out == NULL) {
        (void)fprintf(stderr, "%s: repartition needs --out NAME\n", CKPT_NAME);
        return TOOL_USAGE;
    }
    if (config->ranks == 0 && config->nodes == NULL) {
        (void)fprintf(stderr, "%s: repartition needs --ranks N, or --nodes with one label per rank\n", CKPT_NAME);
        return TOOL_USAGE;
    }
    if (config->nodes == NULL && config->ranks <= NODES_RANKS_MAX) { /* one node per rank */
        map->n_ranks = map->n_nodes = config->ranks;
        for (uint32_t r = 0; r < config->ranks; r++)
            map->node_of[r] = r;
        return TOOL_OK;
    }
    if (node_map_read(map, config->ranks, config->nodes != NULL ? config->nodes : "1", why, sizeof(why)))
        return TOOL_OK;
    (void)fprintf(stderr, "%s: %s\n", CKPT_NAME, why);
    return TOOL_USAGE;
}

int ckpt_repartition(const ckpt_config_t *config, const ckpt_files_t *files)
{
    static node_map_t map;
    lnt_state_save_t save;
    int code = read_map(config, &map);

    if (code != TOOL_OK) return code;
    if (lnt_state_save_open(files->blobs, files->bytes, files->n, &save) < 0) return tool_complain(CKPT_NAME);
    code = write_all(config, &save, &map, files);
    if (code == TOOL_OK) code = print_move(config, &save, &map);
    lnt_state_save_close(&save);
    return code;
}
