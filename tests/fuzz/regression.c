/* A fuzz target without a fuzzer: main for machines that have none. Runs every stored input of a folder, changed copies
 * of them, and random bytes. The seed is printed; LNT_TEST_SEED repeats a run.
 */
#include <dirent.h>

#include "../testing.h"
#include "fuzz_target.h"

enum { INPUT_MAX = 4096, CORPUS_MAX = 1000, CHANGED = 3000, RANDOM = 3000 };

static struct {
    size_t size;
    uint8_t *bytes;
} corpus[CORPUS_MAX];
static size_t n_corpus;

static void read_input(const char *folder, const char *name)
{
    static uint8_t bytes[INPUT_MAX];
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    fuzz_check(file != NULL, "a stored input can be read");
    corpus[n_corpus].size = fread(bytes, 1, sizeof(bytes), file);
    corpus[n_corpus].bytes = malloc(corpus[n_corpus].size + 1);
    fuzz_check(corpus[n_corpus].bytes != NULL, "there is memory");
    memcpy(corpus[n_corpus].bytes, bytes, corpus[n_corpus].size);
    n_corpus++;
    fclose(file);
}

static void read_corpus(const char *folder)
{
    DIR *directory = opendir(folder);
    fuzz_check(directory != NULL, "the folder of stored inputs is there");
    for (struct dirent *entry = readdir(directory); entry && n_corpus < CORPUS_MAX; entry = readdir(directory))
        if (entry->d_name[0] != '.') read_input(folder, entry->d_name);
    closedir(directory);
    fuzz_check(n_corpus > 0, "there are stored inputs");
}

/* A copy of exact size, so that memory checkers see a read behind it. */
static void run(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size + !size);
    fuzz_check(copy != NULL, "there is memory");
    memcpy(copy, bytes, size);
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void run_changed(void)
{
    static uint8_t bytes[INPUT_MAX];
    size_t from = test_random_below(n_corpus), size = corpus[from].size;
    memcpy(bytes, corpus[from].bytes, size);
    for (uint64_t k = test_random_below(8); k > 0 && size; k--)
        bytes[test_random_below(size)] = (uint8_t)test_random();
    if (test_random_below(4) == 0) size = test_random_below(size + 1);
    run(bytes, size);
}

static void run_random(void)
{
    static uint8_t bytes[INPUT_MAX];
    size_t size = test_random_below(test_random_below(2) ? 40 : sizeof(bytes));
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)test_random();
    run(bytes, size);
}

int main(int argc, char **argv)
{
    fuzz_check(argc == 2, "the argument is a folder of inputs");
    test_seed_from_environment();
    read_corpus(argv[1]);
    for (size_t k = 0; k < n_corpus; k++)
        run(corpus[k].bytes, corpus[k].size);
    for (int k = 0; k < CHANGED; k++)
        run_changed();
    for (int k = 0; k < RANDOM; k++)
        run_random();
    printf("%zu stored inputs, %d changed ones, %d random ones\n", n_corpus, CHANGED, RANDOM);
    for (size_t k = 0; k < n_corpus; k++)
        free(corpus[k].bytes);
    return EXIT_SUCCESS;
}
