/* Preparation and cache. CACHE/text-KEY holds train.u16 and held_out.u16 (token numbers, 16 bits, this machine's byte
 * order) and the SentencePiece model; KEY is a hash of the text and of everything that decides the result.
 *
 * Made in a directory of its own under a lock file, then renamed: a directory with the final name is always whole. The
 * lock is the kernel's (flock), so that it ends with its holder. */
#include "tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "corpus.h"
#include "counter_rng.h"
#include "say.h"
#include "tool.h"

static const char DICTIONARY[] = "/usr/share/dictd/gcide.dict.dz";

enum { TRAIN_TOKENIZER_EVERY = 3, FEWEST_TOKENS = 200, LOCK_WAIT_S = 600, PLACE_MAX = 700 };

static const char *const work_files[] = {"train.txt", "held_out.txt", "tokenizer.txt", "train.ids", "held_out.ids"};

/* A file of the cache entry: "DIR/NAME". */
typedef struct place {
    char text[PLACE_MAX + 32];
} place_t;

static place_t in_dir(const char *dir, const char *name)
{
    place_t place;

    snprintf(place.text, sizeof(place.text), "%.*s/%s", PLACE_MAX, dir, name);
    return place;
}

static uint64_t cache_key(const char *raw, size_t bytes, bool dictionary, int vocab)
{
    uint64_t key = rng_mix((uint64_t)CORPUS_RULES_VERSION + ((uint64_t)vocab << 8) + ((uint64_t)dictionary << 40));

    for (size_t i = 0; i < bytes; i++) {
        key = (key ^ (unsigned char)raw[i]) * 0x100000001b3u;
    }
    return rng_mix(key ^ bytes);
}

/* Writes the paragraphs of one part; every `step`th of them. */
static bool write_part(const corpus_t *corpus, bool held_out, size_t step, place_t place)
{
    FILE *file = fopen(place.text, "w");
    size_t n = 0;

    for (size_t i = 0; (file != NULL) && (i < corpus->n); i++) {
        if ((corpus_held_out(corpus, i) == held_out) && (n++ % step == 0)) {
            fwrite(corpus->text + corpus->begin[i], 1, corpus->begin[i + 1] - corpus->begin[i], file);
        }
    }
    if ((file == NULL) || ferror(file) || (fclose(file) != 0)) {
        return bert_fail("cannot write %s: %s", place.text, strerror(errno));
    }
    return true;
}

static bool train_tokenizer(const char *dir, int vocab)
{
    char input[PLACE_MAX + 64], prefix[PLACE_MAX + 64], size[64];
    char *const argv[] = {"spm_train",
                          input,
                          prefix,
                          size,
                          "--model_type=bpe",
                          "--character_coverage=1.0",
                          "--pad_id=0",
                          "--unk_id=1",
                          "--bos_id=-1",
                          "--eos_id=-1",
                          "--control_symbols=[CLS],[SEP],[MASK]",
                          "--hard_vocab_limit=false",
                          "--num_threads=1",
                          NULL};

    snprintf(input, sizeof(input), "--input=%s", in_dir(dir, "tokenizer.txt").text);
    snprintf(prefix, sizeof(prefix), "--model_prefix=%s", in_dir(dir, "tokenizer").text);
    snprintf(size, sizeof(size), "--vocab_size=%d", vocab);
    return tool_run(argv, in_dir(dir, "spm_train.log").text, "sentencepiece");
}

static bool encode(const char *dir, const char *from, const char *to)
{
    char model[PLACE_MAX + 64], input[PLACE_MAX + 64], output[PLACE_MAX + 64];
    char *const argv[] = {"spm_encode", model, "--output_format=id", input, output, NULL};

    snprintf(model, sizeof(model), "--model=%s", in_dir(dir, "tokenizer.model").text);
    snprintf(input, sizeof(input), "--input=%s", in_dir(dir, from).text);
    snprintf(output, sizeof(output), "--output=%s", in_dir(dir, to).text);
    return tool_run(argv, in_dir(dir, "spm_encode.log").text, "sentencepiece");
}

/* "12 7 1999\n..." to 16-bit numbers. */
static bool pack(place_t from, place_t to, int vocab)
{
    FILE *in = fopen(from.text, "r"), *out = fopen(to.text, "w");
    size_t count = 0;
    bool good = (in != NULL) && (out != NULL);
    int c, value = -1;

    while (good && ((c = getc_unlocked(in)) != EOF)) {
        if ((c >= '0') && (c <= '9')) {
            value = ((value < 0) ? 0 : value) * 10 + (c - '0');
            good = value < vocab;
        } else if (value >= 0) {
            uint16_t token = (uint16_t)value;
            good = fwrite(&token, sizeof(token), 1, out) == 1;
            count++;
            value = -1;
        }
    }
    if (in != NULL) {
        fclose(in);
    }
    if ((out != NULL) && (fclose(out) != 0)) {
        good = false;
    }
    if (!good || (count < FEWEST_TOKENS)) {
        return bert_fail("%s: %s", from.text, good ? "the text is too short" : "no token numbers, or no space");
    }
    return true;
}

static bool prepare(const char *raw, size_t bytes, bool dictionary, int vocab, const char *dir)
{
    corpus_t corpus;
    bool done;

    if (!corpus_clean(raw, bytes, dictionary, &corpus)) {
        return false;
    }
    if (corpus.n == 0) {
        corpus_free(&corpus);
        return bert_fail("the text has no paragraph worth learning");
    }
    bert_say("preparing the text once: %zu paragraphs, %.1f MB; training the tokenizer, about 20 s", corpus.n,
             (double)corpus.begin[corpus.n] / 1e6);
    done = write_part(&corpus, false, 1, in_dir(dir, "train.txt")) &&
           write_part(&corpus, true, 1, in_dir(dir, "held_out.txt")) &&
           write_part(&corpus, false, TRAIN_TOKENIZER_EVERY, in_dir(dir, "tokenizer.txt"));
    corpus_free(&corpus);
    done = done && train_tokenizer(dir, vocab) && encode(dir, "train.txt", "train.ids") &&
           encode(dir, "held_out.txt", "held_out.ids") &&
           pack(in_dir(dir, "train.ids"), in_dir(dir, "train.u16"), vocab) &&
           pack(in_dir(dir, "held_out.ids"), in_dir(dir, "held_out.u16"), vocab);
    for (size_t i = 0; done && (i < sizeof(work_files) / sizeof(work_files[0])); i++) {
        unlink(in_dir(dir, work_files[i]).text);
    }
    return done;
}

/* -1 after a message. */
static int lock(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

    for (int waited = 0; file >= 0; waited++) {
        if (flock(file, LOCK_EX | LOCK_NB) == 0) {
            return file;
        }
        if ((errno != EWOULDBLOCK && errno != EINTR) || (waited > LOCK_WAIT_S * 5)) {
            break;
        }
        if (waited == 5) {
            bert_say("waiting for another run that prepares the text");
        }
        usleep(200000);
    }
    bert_fail("cannot lock %s: %s", path, strerror(errno));
    if (file >= 0) {
        close(file);
    }
    return -1;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status;
    (void)kind;
    (void)where;
    return remove(path);
}

/* The entry is made under the lock unless it has come into being meanwhile. */
static bool make_entry(const char *raw, size_t bytes, bool dictionary, int vocab, const char *entry)
{
    char work[PLACE_MAX + 32], lock_path[PLACE_MAX + 32];
    int held;
    bool done;

    snprintf(lock_path, sizeof(lock_path), "%.*s.lock", PLACE_MAX, entry);
    snprintf(work, sizeof(work), "%.*s.work-%d", PLACE_MAX, entry, (int)getpid());
    if ((held = lock(lock_path)) < 0) {
        return false;
    }
    done = exists(entry);
    if (!done) {
        done = (mkdir(work, 0755) == 0) || bert_fail("cannot create %s: %s", work, strerror(errno));
        done = done && prepare(raw, bytes, dictionary, vocab, work);
        done = done && ((rename(work, entry) == 0) || bert_fail("cannot create %s: %s", entry, strerror(errno)));
    }
    if (!done) {
        nftw(work, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    }
    close(held);
    return done;
}

static bool map_stream(place_t place, bert_stream_t *stream)
{
    int file = open(place.text, O_RDONLY | O_CLOEXEC);
    struct stat status;
    void *memory = MAP_FAILED;

    if ((file >= 0) && (fstat(file, &status) == 0) && (status.st_size > 0)) {
        memory = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    }
    if (file >= 0) {
        close(file);
    }
    if (memory == MAP_FAILED) {
        return bert_fail("cannot read %s: %s", place.text, strerror(errno));
    }
    *stream = (bert_stream_t){.token = memory, .count = (size_t)status.st_size / sizeof(uint16_t)};
    return true;
}

static bool find_text(const char **text_p)
{
    if (*text_p != NULL) {
        return true;
    }
    *text_p = DICTIONARY;
    return exists(DICTIONARY) || bert_fail("the dictionary %s is not installed: apt-get install dict-gcide, or name a "
                                           "text of your own with --text FILE",
                                           DICTIONARY);
}

bool bert_tokens_open(const char *text, const char *cache, int vocab, bert_tokens_t *tokens)
{
    bool dictionary = (text == NULL), done;
    char entry[PLACE_MAX];
    size_t bytes;
    char *raw;

    *tokens = (bert_tokens_t){0};
    if (!find_text(&text) || ((raw = corpus_read_file(text, &bytes)) == NULL)) {
        return false;
    }
    if ((mkdir(cache, 0755) != 0) && (errno != EEXIST)) {
        free(raw);
        return bert_fail("cannot create the cache %s: %s (choose another with --cache)", cache, strerror(errno));
    }
    snprintf(entry, sizeof(entry), "%.600s/text-%016llx", cache,
             (unsigned long long)cache_key(raw, bytes, dictionary, vocab));
    done = exists(entry) || make_entry(raw, bytes, dictionary, vocab, entry);
    free(raw);
    done = done && map_stream(in_dir(entry, "train.u16"), &tokens->train) &&
           map_stream(in_dir(entry, "held_out.u16"), &tokens->held_out);
    if (!done) {
        bert_tokens_close(tokens);
    }
    return done;
}

static void unmap_stream(bert_stream_t *stream)
{
    if (stream->token != NULL) {
        munmap((void *)(uintptr_t)stream->token, stream->count * sizeof(uint16_t));
    }
    *stream = (bert_stream_t){0};
}

void bert_tokens_close(bert_tokens_t *tokens)
{
    unmap_stream(&tokens->train);
    unmap_stream(&tokens->held_out);
}
