/* Sanity of a frame header by itself: what a receiver checks before it believes any size in it.
 * Whether the frame belongs to something that runs here is the sink's question. */
#include "frame.h"

bool lnt_frame_header_valid(const lnt_frame_header_t *header)
{
    const uint32_t size_limit = UINT32_C(1) << 31;
    const uint8_t last_phase = 3;
    const uint8_t known_flags = LNT_FRAME_POISONED | LNT_FRAME_VETO;

    return (header->magic == LNT_FRAME_MAGIC) && (header->version == LNT_FRAME_VERSION) &&
           (header->phase <= last_phase) && ((header->flags & ~known_flags) == 0) && (header->reserved == 0) &&
           (header->payload_bytes < size_limit) && (header->section_bytes < size_limit);
}
