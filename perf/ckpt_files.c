/* Files as memory. */
#include "ckpt_tool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int complain(const char *name, const char *why)
{
    (void)fprintf(stderr, "%s: cannot read %s: %s\n", CKPT_NAME, name, why);
    return TOOL_FAILED;
}

static int map_file(const char *name, const void **blob_p, uint64_t *bytes_p)
{
    struct stat status;
    void *memory = MAP_FAILED;
    int file = open(name, O_RDONLY | O_CLOEXEC), problem = 0;

    if (file < 0) return complain(name, strerror(errno));
    if (fstat(file, &status) != 0) {
        problem = errno;
    } else if (!S_ISREG(status.st_mode) || status.st_size == 0) {
        problem = EINVAL;
    } else {
        memory = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        problem = memory == MAP_FAILED ? errno : 0;
    }
    (void)close(file);
    if (problem != 0) return complain(name, problem == EINVAL ? "no file, or empty" : strerror(problem));
    *blob_p = memory;
    *bytes_p = (uint64_t)status.st_size;
    return TOOL_OK;
}

int ckpt_files_open(ckpt_files_t *files, const char *const *names, uint32_t n)
{
    int code = TOOL_OK;

    files->names = names;
    files->n = 0;
    files->blobs = calloc(n, sizeof(*files->blobs));
    files->bytes = calloc(n, sizeof(*files->bytes));
    if (files->blobs == NULL || files->bytes == NULL) return complain(names[0], "out of memory");
    for (; files->n < n && code == TOOL_OK; files->n += code == TOOL_OK)
        code = map_file(names[files->n], &files->blobs[files->n], &files->bytes[files->n]);
    return code;
}

void ckpt_files_close(ckpt_files_t *files)
{
    for (uint32_t i = 0; i < files->n; i++)
        (void)munmap((void *)(uintptr_t)files->blobs[i], files->bytes[i]);
    free(files->blobs);
    free(files->bytes);
}
