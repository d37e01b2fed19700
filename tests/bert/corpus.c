/* Cleaning: lines are joined to paragraphs; bracketed notes, pronunciations, braces, quotation sources and bytes that
 * are no UTF-8 go; paragraphs that are short, mostly no letters, or known already are dropped. Held-out blocks rather
 * than single paragraphs, since the definitions of one headword repeat each other. */
#include "corpus.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "counter_rng.h"
#include "say.h"

enum { SHORTEST_PARAGRAPH = 40, LONGEST_PARAGRAPH = 4000, HELD_OUT_EVERY = 25, HELD_OUT_BLOCK = 200 };

char *corpus_read_file(const char *path, size_t *bytes_p)
{
    gzFile file = gzopen(path, "rb");
    size_t room = 1 << 20, used = 0;
    char *text = malloc(room);
    int got = 0;

    while ((file != NULL) && (text != NULL) && ((got = gzread(file, text + used, (unsigned)(room - used - 1))) > 0)) {
        used += (size_t)got;
        if (room - used < room / 2) {
            char *larger = realloc(text, room *= 2);
            if (larger == NULL) {
                free(text);
            }
            text = larger;
        }
    }
    if (file != NULL) {
        gzclose(file);
    }
    if ((file == NULL) || (text == NULL) || (got < 0)) {
        bert_fail("cannot read the text %s%s", path, (file == NULL) ? "" : ": damaged, or no memory");
        free(text);
        return NULL;
    }
    text[used] = '\0';
    *bytes_p = used;
    return text;
}

/* Length of a UTF-8 sequence by its first byte, 0 if none begins so. */
static size_t utf8_announced(unsigned char first)
{
    if (first < 0x80) {
        return 1;
    }
    if ((first < 0xc2) || (first > 0xf4)) {
        return 0;
    }
    return (first < 0xe0) ? 2 : (first < 0xf0) ? 3 : 4;
}

/* Length of the UTF-8 sequence at p, 0 if it is none. */
static size_t utf8_length(const unsigned char *p, size_t left)
{
    size_t n = utf8_announced(p[0]);

    if (n > left) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return n;
}

/* Copies [from, from + n) into `to` without what is no text; returns the new length. */
static size_t keep_text(const char *from, size_t n, char *to)
{
    size_t used = 0;

    for (size_t i = 0; i < n;) {
        size_t length = utf8_length((const unsigned char *)from + i, n - i);
        char c = from[i];

        if ((length == 0) || ((length == 1) && iscntrl((unsigned char)c) && !isspace((unsigned char)c))) {
            i++;
        } else if (isspace((unsigned char)c)) {
            if ((used > 0) && (to[used - 1] != ' ')) {
                to[used++] = ' ';
            }
            i++;
        } else {
            memmove(to + used, from + i, length);
            used += length;
            i += length;
        }
    }
    return used - ((used > 0) && (to[used - 1] == ' '));
}

/* In place: drops everything between `open` and `close`, nested, both included. */
static size_t drop_nested(char *text, size_t n, char open, char close)
{
    size_t used = 0, depth = 0;

    for (size_t i = 0; i < n; i++) {
        if (text[i] == open) {
            depth++;
        } else if ((text[i] == close) && (depth > 0)) {
            depth--;
        } else if (depth == 0) {
            text[used++] = text[i];
        }
    }
    return used;
}

/* In place: drops \pronunciation\ and a "(pronunciation)" that follows it. */
static size_t drop_pronunciation(char *text, size_t n)
{
    size_t used = 0;

    for (size_t i = 0; i < n; i++) {
        const char *end = (text[i] == '\\') ? memchr(text + i + 1, '\\', n - i - 1) : NULL;

        if (end == NULL) {
            text[used++] = text[i];
            continue;
        }
        i = (size_t)(end - text);
        if ((i + 2 < n) && (text[i + 1] == ' ') && (text[i + 2] == '(')) {
            const char *bracket = memchr(text + i, ')', n - i);
            i = (bracket == NULL) ? i : (size_t)(bracket - text);
        }
    }
    return used;
}

static size_t drop_characters(char *text, size_t n, const char *unwanted)
{
    size_t used = 0;

    for (size_t i = 0; i < n; i++) {
        if (strchr(unwanted, text[i]) == NULL) {
            text[used++] = text[i];
        }
    }
    return used;
}

/* In place: cuts "--Author." off the end of every line; a dash within a sentence is followed by a space. */
static size_t drop_sources(char *text, size_t n)
{
    size_t used = 0;
    bool cutting = false;

    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n') {
            cutting = false;
        } else if ((i + 2 < n) && (text[i] == '-') && (text[i + 1] == '-') && !isspace((unsigned char)text[i + 2]) &&
                   ((i == 0) || isspace((unsigned char)text[i - 1]))) {
            cutting = true;
        }
        if (!cutting) {
            text[used++] = text[i];
        }
    }
    return used;
}

static size_t clean_dictionary(char *text, size_t n)
{
    n = drop_sources(text, n);
    n = drop_nested(text, n, '[', ']');
    n = drop_pronunciation(text, n);
    return drop_characters(text, n, "[]{}*^_=<>|~#\\`");
}

static bool worth_keeping(const char *text, size_t n)
{
    size_t good = 0;

    for (size_t i = 0; i < n; i++) {
        good += isalpha((unsigned char)text[i]) || (text[i] == ' ') || ((unsigned char)text[i] >= 0x80);
    }
    return (n >= SHORTEST_PARAGRAPH) && (good * 100 >= n * 85);
}

/* Hashes of the paragraphs kept so far, open addressing; 0 is free. */
typedef struct known {
    uint64_t *slot;
    size_t mask;
} known_t;

static bool known_before(known_t *known, const char *text, size_t n)
{
    uint64_t hash = n;

    for (size_t i = 0; i < n; i++) {
        hash = rng_mix(hash ^ (unsigned char)text[i]) + 1;
    }
    hash |= 1;
    for (size_t at = hash >> 20;; at++) {
        uint64_t *slot = &known->slot[at & known->mask];
        if (*slot == hash) {
            return true;
        }
        if (*slot == 0) {
            *slot = hash;
            return false;
        }
    }
}

/* Length of the paragraph at `text`: to the next empty line, or one line. */
static size_t paragraph_length(const char *text, size_t left, bool one_line)
{
    for (size_t i = 0; i < left; i++) {
        if ((text[i] == '\n') && (one_line || (i + 1 == left) || (text[i + 1] == '\n'))) {
            return i + 1;
        }
    }
    return left;
}

static bool has_empty_line(const char *raw)
{
    return strstr(raw, "\n\n") != NULL;
}

/* The dictionary's own description comes first: the text begins at the first line that is a headword. */
static size_t first_headword(const char *raw, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(raw + at, '\n', bytes - at);
        size_t length = (end == NULL) ? bytes - at : (size_t)(end - raw) - at;
        const char *pronounced = memmem(raw + at, length, " \\", 2);

        if ((raw[at] != ' ') && (pronounced != NULL)) {
            return at;
        }
        at += length + 1;
    }
    return 0;
}

static bool allocate(corpus_t *corpus, known_t *known, size_t bytes)
{
    size_t slots = 1024;

    while (slots < bytes / 8) {
        slots *= 2;
    }
    *corpus = (corpus_t){.text = malloc(bytes + 2), .begin = malloc((bytes / SHORTEST_PARAGRAPH + 2) * sizeof(size_t))};
    *known = (known_t){.slot = calloc(slots, sizeof(uint64_t)), .mask = slots - 1};
    return (corpus->text != NULL) && (corpus->begin != NULL) && (known->slot != NULL);
}

/* Appends one paragraph if it is worth it; `out` is where it goes in corpus->text. */
static size_t take_paragraph(corpus_t *corpus, known_t *known, const char *raw, size_t n, bool dictionary, size_t out)
{
    char *to = corpus->text + out;

    memcpy(to, raw, n);
    n = dictionary ? clean_dictionary(to, n) : n;
    n = keep_text(to, n, to);
    n = (n > LONGEST_PARAGRAPH) ? 0 : n;
    if (!worth_keeping(to, n) || known_before(known, to, n)) {
        return out;
    }
    corpus->begin[corpus->n++] = out;
    to[n] = '\n';
    return out + n + 1;
}

bool corpus_clean(const char *raw, size_t bytes, bool dictionary, corpus_t *corpus)
{
    size_t out = 0, at = dictionary ? first_headword(raw, bytes) : 0;
    bool one_line = !dictionary && !has_empty_line(raw);
    known_t known;

    if (!allocate(corpus, &known, bytes)) {
        free(known.slot);
        corpus_free(corpus);
        return bert_fail("no memory for a text of %zu bytes", bytes);
    }
    while (at < bytes) {
        size_t n = paragraph_length(raw + at, bytes - at, one_line);
        out = take_paragraph(corpus, &known, raw + at, n, dictionary, out);
        at += n;
    }
    corpus->begin[corpus->n] = out;
    free(known.slot);
    return true;
}

void corpus_free(corpus_t *corpus)
{
    free(corpus->text);
    free(corpus->begin);
    *corpus = (corpus_t){0};
}

bool corpus_held_out(const corpus_t *corpus, size_t paragraph)
{
    size_t block = HELD_OUT_BLOCK;

    while ((block > 1) && (block * HELD_OUT_EVERY * 2 > corpus->n)) {
        block /= 2;
    }
    return (paragraph / block) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1;
}
