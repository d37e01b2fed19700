/* Writing a blob: alignment, lengths and checksums. */
#include "state_writer.h"

#include <string.h>

#include "../src/base/hash.h"

void lnt_state_put(lnt_state_writer_t *writer, const void *data, uint64_t bytes)
{
    if (writer->out != NULL && bytes != 0) memcpy(writer->out + writer->pos, data, bytes);
    writer->pos += bytes;
}

void lnt_state_pad(lnt_state_writer_t *writer)
{
    static const uint8_t zeros[8];

    lnt_state_put(writer, zeros, lnt_state_padded(writer->pos) - writer->pos);
}

void lnt_state_open(lnt_state_writer_t *writer)
{
    const lnt_state_section_t section = {.crc = 0};

    writer->section = writer->pos;
    lnt_state_put(writer, &section, sizeof(section));
}

uint32_t lnt_state_section_crc(const lnt_state_section_t *section, const uint8_t *payload)
{
    uint32_t crc = lnt_crc32c(0, section->name, sizeof(section->name));

    crc = lnt_crc32c(crc, &section->bytes, sizeof(section->bytes));
    return lnt_crc32c(crc, payload, section->bytes);
}

void lnt_state_close(lnt_state_writer_t *writer, const char *name)
{
    const uint64_t start = writer->section + sizeof(lnt_state_section_t);
    lnt_state_section_t section = {.crc = 0};

    lnt_state_pad(writer);
    if (writer->out == NULL) return;
    memcpy(section.name, name, strlen(name));
    section.bytes = writer->pos - start;
    section.crc = lnt_state_section_crc(&section, writer->out + start);
    memcpy(writer->out + writer->section, &section, sizeof(section));
}

void lnt_state_put_section(lnt_state_writer_t *writer, const char *name, const void *payload, uint64_t bytes)
{
    lnt_state_open(writer);
    lnt_state_put(writer, payload, bytes);
    lnt_state_close(writer, name);
}

void lnt_state_put_header(lnt_state_writer_t *writer, lnt_state_header_t header)
{
    if (writer->out == NULL) return;
    memcpy(header.magic, LNT_STATE_MAGIC, sizeof(header.magic));
    header.version = LNT_STATE_VERSION;
    header.bytes = writer->pos;
    header.crc = lnt_crc32c(0, &header, offsetof(lnt_state_header_t, crc));
    memcpy(writer->out, &header, sizeof(header));
}
