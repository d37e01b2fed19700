/* Bytes of a blob, section by section. Without a buffer it only counts. */
#ifndef LNT_STATE_WRITER_H
#define LNT_STATE_WRITER_H

#include "state_format.h"

typedef struct lnt_state_writer {
    uint8_t *out; /* NULL: count only */
    uint64_t pos;
    uint64_t section; /* start of the open one */
} lnt_state_writer_t;

void lnt_state_put(lnt_state_writer_t *writer, const void *data, uint64_t bytes);
void lnt_state_pad(lnt_state_writer_t *writer); /* to 8 bytes */
void lnt_state_open(lnt_state_writer_t *writer);
void lnt_state_close(lnt_state_writer_t *writer, const char *name);
void lnt_state_put_section(lnt_state_writer_t *writer, const char *name, const void *payload, uint64_t bytes);
/* Over the room that was left for it in front: its length and checksum are set here. */
void lnt_state_put_header(lnt_state_writer_t *writer, lnt_state_header_t header);

#endif
