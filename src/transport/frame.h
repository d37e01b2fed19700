/* The frame header: 64 bytes, little-endian, in front of everything that travels between ranks (docs/wire_format.md).
 * A frame is header, payload (scales, then codes, or plain values), activity section. */
#ifndef LNT_TRANSPORT_FRAME_H
#define LNT_TRANSPORT_FRAME_H

#include <linnet/types.h>

enum { LNT_FRAME_HEADER_BYTES = 64, LNT_FRAME_VERSION = 1 };
#define LNT_FRAME_MAGIC 0x31544e4cu /* "LNT1" */

enum { LNT_FRAME_POISONED = 1, LNT_FRAME_VETO = 2 };

/* In memory as on the wire: little-endian hosts only (checked at compile time). */
typedef struct lnt_frame_header {
    uint32_t magic;
    uint8_t version;
    uint8_t phase;        /* 0 inside the node to the shard owner, 1 to the server, 2 from the server; 3 plain data */
    uint8_t codec;        /* lnt_codec_id_t */
    uint8_t flags;        /* LNT_FRAME_* */
    uint64_t sequence;    /* of the request on its communicator; counts transactions */
    uint64_t layout_hash; /* plan hash, or hash of the collective's arguments */
    uint32_t hyper_hash;
    uint16_t program;
    uint16_t reserved; /* 0 */
    uint32_t bucket;
    uint16_t shard;
    uint16_t chunk;   /* node of the server */
    uint32_t source;  /* rank that made the payload */
    uint32_t segment; /* in the shard (phase 0) or chunk */
    uint32_t block;
    uint32_t count; /* elements */
    uint32_t section_bytes;
    uint32_t payload_bytes;
} lnt_frame_header_t;

_Static_assert(sizeof(lnt_frame_header_t) == LNT_FRAME_HEADER_BYTES, "the header is the wire format");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "big-endian hosts need byte swaps here");

/* Header sane in itself (magic, version, phase, known flags, sizes below 2^31)? */
bool lnt_frame_header_valid(const lnt_frame_header_t *header);

#endif
