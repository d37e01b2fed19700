/* Saving and resuming. Data, masks and learning rate depend on the step number alone, so the optimizer's blob and that
 * number are everything. Files are written beside their place and renamed; trainer.txt comes last, by rank 0, so that a
 * directory with it is whole. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "say.h"
#include "team.h"
#include "trainer.h"

enum { NAME_MAX_BYTES = 512 };

static bool write_file(const char *path, const void *data, size_t bytes)
{
    char work[NAME_MAX_BYTES + 8];
    FILE *file;
    bool good;

    snprintf(work, sizeof(work), "%s.work", path);
    file = fopen(work, "wb");
    good = (file != NULL) && (fwrite(data, 1, bytes, file) == bytes);
    if (file != NULL) {
        good = (fclose(file) == 0) && good;
    }
    good = good && (rename(work, path) == 0);
    return good || bert_fail("cannot write %s: %s", path, strerror(errno));
}

static bool save_blob(bert_trainer_t *t, const char *dir)
{
    char path[NAME_MAX_BYTES];
    uint64_t bytes;
    void *blob = NULL;
    bool good = lnt_optim_state_size(t->optim, &bytes) == LNT_OK;

    good = good && ((blob = malloc(bytes)) != NULL) && (lnt_optim_state_export(t->optim, blob, bytes) == LNT_OK);
    if (!good) {
        free(blob);
        return bert_lnt_fail("saving");
    }
    snprintf(path, sizeof(path), "%.460s/rank-%u.state", dir, t->rank);
    good = write_file(path, blob, bytes);
    free(blob);
    return good;
}

bool bert_trainer_save(bert_trainer_t *t, const char *dir)
{
    char path[NAME_MAX_BYTES], text[64];

    if ((mkdir(dir, 0755) != 0) && (errno != EEXIST)) {
        return bert_fail("cannot create %s: %s", dir, strerror(errno));
    }
    if (!save_blob(t, dir)) {
        return false;
    }
    if (lnt_barrier(t->comm) != LNT_OK) {
        return bert_lnt_fail("saving");
    }
    snprintf(path, sizeof(path), "%.460s/trainer.txt", dir);
    snprintf(text, sizeof(text), "step %d\nranks %u\n", t->step, t->n_ranks);
    return (t->rank != 0) || write_file(path, text, strlen(text));
}

static bool read_step(bert_trainer_t *t, const char *dir)
{
    char path[NAME_MAX_BYTES];
    unsigned ranks = 0;
    FILE *file;

    snprintf(path, sizeof(path), "%.460s/trainer.txt", dir);
    file = fopen(path, "r");
    if (file == NULL) {
        return bert_fail("cannot read %s: %s", path, strerror(errno));
    }
    if (fscanf(file, "step %d ranks %u", &t->step, &ranks) != 2) {
        ranks = 0;
    }
    fclose(file);
    if ((ranks != t->n_ranks) || (t->step < 0) || (t->step > t->last_step)) {
        return bert_fail("%s: step %d of %u ranks cannot be continued by %u ranks to step %d", path, t->step, ranks,
                         t->n_ranks, t->last_step);
    }
    return true;
}

/* NULL after a message. */
static void *read_blob(const char *path, uint64_t *bytes_p)
{
    struct stat status;
    FILE *file = fopen(path, "rb");
    void *blob = NULL;

    if ((file != NULL) && (fstat(fileno(file), &status) == 0) &&
        ((blob = malloc((size_t)status.st_size + 1)) != NULL)) {
        *bytes_p = fread(blob, 1, (size_t)status.st_size, file);
    }
    if (file != NULL) {
        fclose(file);
    }
    if (blob == NULL) {
        bert_fail("cannot read %s: %s", path, strerror(errno));
    }
    return blob;
}

bool bert_trainer_resume(bert_trainer_t *t, const char *dir)
{
    char path[NAME_MAX_BYTES];
    uint64_t bytes;
    void *blob;
    bool good;

    snprintf(path, sizeof(path), "%.460s/rank-%u.state", dir, t->rank);
    if (!read_step(t, dir) || ((blob = read_blob(path, &bytes)) == NULL)) {
        return false;
    }
    good = (lnt_optim_state_import(t->optim, blob, bytes) == LNT_OK) || bert_lnt_fail("resuming");
    free(blob);
    return good;
}
