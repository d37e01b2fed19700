/* Saving and resuming. Data, masks and learning rate depend on the step number alone, so the optimizer's blob and that
 * number are everything. All ranks write their files beside their places first: if one cannot, what was saved there
 * before stays. Then trainer.txt goes, the files take their places, and it comes back last, so that a directory with it
 * is whole. */
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

static void work_name(char work[NAME_MAX_BYTES + 8], const char *path)
{
    snprintf(work, NAME_MAX_BYTES + 8, "%s.work", path);
}

static void drop_work(const char *path)
{
    char work[NAME_MAX_BYTES + 8];

    work_name(work, path);
    unlink(work);
}

static bool write_work(const char *path, const void *data, size_t bytes)
{
    char work[NAME_MAX_BYTES + 8];
    FILE *file;
    bool good;

    work_name(work, path);
    file = fopen(work, "wb");
    good = (file != NULL) && (fwrite(data, 1, bytes, file) == bytes);
    if (file != NULL) {
        good = (fclose(file) == 0) && good;
    }
    return good || bert_fail("cannot write %s: %s", path, strerror(errno));
}

static bool put_in_place(const char *path)
{
    char work[NAME_MAX_BYTES + 8];

    work_name(work, path);
    return (rename(work, path) == 0) || bert_fail("cannot write %s: %s", path, strerror(errno));
}

static bool write_blob(bert_trainer_t *t, const char *path)
{
    uint64_t bytes;
    void *blob = NULL;
    bool good = lnt_optim_state_size(t->optim, &bytes) == LNT_OK;

    good = good && ((blob = malloc(bytes)) != NULL) && (lnt_optim_state_export(t->optim, blob, bytes) == LNT_OK);
    good = good ? write_work(path, blob, bytes) : bert_lnt_fail("saving");
    free(blob);
    return good;
}

static bool all_did(bert_trainer_t *t)
{
    return (lnt_barrier(t->comm) == LNT_OK) || bert_lnt_fail("saving");
}

/* The directory is not whole from here until write_mark. */
static bool remove_mark(const bert_trainer_t *t, const char *path)
{
    return (t->rank != 0) || (unlink(path) == 0) || (errno == ENOENT) ||
           bert_fail("cannot replace %s: %s", path, strerror(errno));
}

static bool write_mark(const bert_trainer_t *t, const char *path)
{
    char text[64];

    snprintf(text, sizeof(text), "step %d\nranks %u\n", t->step, t->n_ranks);
    return (t->rank != 0) || (write_work(path, text, strlen(text)) && put_in_place(path));
}

bool bert_trainer_save(bert_trainer_t *t, const char *dir)
{
    char state[NAME_MAX_BYTES], mark[NAME_MAX_BYTES];

    if ((mkdir(dir, 0755) != 0) && (errno != EEXIST)) {
        return bert_fail("cannot create %s: %s", dir, strerror(errno));
    }
    snprintf(state, sizeof(state), "%.460s/rank-%u.state", dir, t->rank);
    snprintf(mark, sizeof(mark), "%.460s/trainer.txt", dir);
    if (!write_blob(t, state) || !all_did(t)) {
        drop_work(state);
        return false;
    }
    return remove_mark(t, mark) && all_did(t) && put_in_place(state) && all_did(t) && write_mark(t, mark);
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
