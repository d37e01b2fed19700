/* One connection of the store: bounded reads and writes, messages with keyed hashes, the handshake. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../base/clock.h"
#include "store.h"

#define STORE_MAGIC 0x53544e4cu /* "LNTS" */
enum { STORE_PROTOCOL = 1 };

typedef struct message_header {
    uint32_t magic, type;
    uint64_t bytes;
} message_header_t;

/* Waits until the socket is ready; LNT_ERR_TIMED_OUT at the deadline. */
static lnt_status_t wait_ready(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now = lnt_now_ns();
        struct pollfd poll_fd = {.fd = fd, .events = events};
        int n;

        if (now >= deadline_ns) {
            return LNT_ERR_TIMED_OUT;
        }
        n = poll(&poll_fd, 1, (int)((deadline_ns - now) / 1000000 % 1000) + 1);
        if (n > 0) {
            return LNT_OK;
        }
        if (n < 0 && errno != EINTR) {
            return LNT_ERR_SYSTEM;
        }
    }
}

static bool would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

lnt_status_t lnt_store_link_write(int fd, const void *data, size_t bytes, uint64_t deadline_ns)
{
    const uint8_t *at = data;

    while (bytes > 0) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
            continue;
        }
        if (!would_block()) {
            return LNT_ERR_PEER_LOST;
        }
        lnt_status_t status = wait_ready(fd, POLLOUT, deadline_ns);
        if (status < 0) {
            return status;
        }
    }
    return LNT_OK;
}

lnt_status_t lnt_store_link_read(int fd, void *data, size_t bytes, uint64_t deadline_ns)
{
    uint8_t *at = data;

    while (bytes > 0) {
        ssize_t n = recv(fd, at, bytes, MSG_DONTWAIT);

        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
            continue;
        }
        if (n == 0 || !would_block()) {
            return LNT_ERR_PEER_LOST;
        }
        lnt_status_t status = wait_ready(fd, POLLIN, deadline_ns);
        if (status < 0) {
            return status;
        }
    }
    return LNT_OK;
}

/* Keyed hash of one message: direction and counter make every message of a session different. */
static void message_mac(const lnt_store_link_t *link, bool from_server, uint64_t counter, const message_header_t *header,
                        const void *data, uint8_t mac[LNT_AUTH_BYTES])
{
    uint8_t prefix[sizeof(uint64_t) + sizeof(*header) + 1];

    memcpy(prefix, &counter, sizeof(counter));
    memcpy(prefix + sizeof(counter), header, sizeof(*header));
    prefix[sizeof(prefix) - 1] = from_server;
    link->auth->mac(link->key, prefix, sizeof(prefix), data, (size_t)header->bytes, mac);
}

lnt_status_t lnt_store_link_send(lnt_store_link_t *link, uint32_t type, const void *data, size_t bytes, uint64_t deadline_ns)
{
    message_header_t header = {.magic = STORE_MAGIC, .type = type, .bytes = bytes};
    uint8_t mac[LNT_AUTH_BYTES] = {0};
    lnt_status_t status;

    if (link->auth != NULL) {
        message_mac(link, link->server, link->sent, &header, data, mac);
    }
    link->sent++;
    status = lnt_store_link_write(link->fd, &header, sizeof(header), deadline_ns);
    if (status == LNT_OK) {
        status = lnt_store_link_write(link->fd, mac, sizeof(mac), deadline_ns);
    }
    return status == LNT_OK ? lnt_store_link_write(link->fd, data, bytes, deadline_ns) : status;
}

lnt_status_t lnt_store_link_receive(lnt_store_link_t *link, uint32_t *type_p, void *data, size_t room, size_t *bytes_p,
                              uint64_t deadline_ns)
{
    message_header_t header;
    uint8_t mac[LNT_AUTH_BYTES], expected[LNT_AUTH_BYTES];
    lnt_status_t status = lnt_store_link_read(link->fd, &header, sizeof(header), deadline_ns);

    if (status == LNT_OK) {
        status = lnt_store_link_read(link->fd, mac, sizeof(mac), deadline_ns);
    }
    if (status < 0) {
        return status;
    }
    if (header.magic != STORE_MAGIC || header.bytes > room) {
        return LNT_ERR_CORRUPT;
    }
    status = lnt_store_link_read(link->fd, data, (size_t)header.bytes, deadline_ns);
    if (status < 0) {
        return status;
    }
    if (link->auth != NULL) {
        message_mac(link, !link->server, link->received, &header, data, expected);
        if (!link->auth->equal(mac, expected, sizeof(mac))) {
            return LNT_ERR_AUTH;
        }
    }
    link->received++;
    *type_p = header.type;
    *bytes_p = (size_t)header.bytes;
    return LNT_OK;
}

void lnt_store_link_close(lnt_store_link_t *link)
{
    if (link->fd >= 0) {
        close(link->fd);
        link->fd = -1;
    }
    if (link->auth != NULL) {
        link->auth->wipe(link->key, sizeof(link->key));
    }
}

/* Proof of one side: role, hello (with the client's nonce) and the server's nonce under the secret's key. */
static void make_proof(const lnt_store_link_t *link, const uint8_t *base_key, const char *role, const lnt_hello_t *hello,
                       const uint8_t *server_nonce, uint8_t proof[LNT_AUTH_BYTES])
{
    uint8_t text[sizeof(*hello) + LNT_STORE_NONCE];

    memset(proof, 0, LNT_AUTH_BYTES);
    if (link->auth == NULL) {
        return;
    }
    memcpy(text, hello, sizeof(*hello));
    memcpy(text + sizeof(*hello), server_nonce, LNT_STORE_NONCE);
    link->auth->mac(base_key, role, strlen(role), text, sizeof(text), proof);
}

static bool proof_holds(const lnt_store_link_t *link, const uint8_t *base_key, const char *role, const lnt_hello_t *hello,
                        const uint8_t *server_nonce, const uint8_t proof[LNT_AUTH_BYTES])
{
    uint8_t expected[LNT_AUTH_BYTES];

    if (link->auth == NULL) {
        return true;
    }
    make_proof(link, base_key, role, hello, server_nonce, expected);
    return link->auth->equal(proof, expected, sizeof(expected));
}

typedef struct server_reply {
    uint8_t nonce[LNT_STORE_NONCE];
    uint8_t proof[LNT_AUTH_BYTES];
} server_reply_t;

lnt_status_t lnt_store_link_handshake_client(lnt_store_link_t *link, const uint8_t *base_key, lnt_hello_t *hello, uint64_t deadline_ns)
{
    server_reply_t reply;
    uint8_t proof[LNT_AUTH_BYTES];
    lnt_status_t status;

    hello->magic = STORE_MAGIC;
    hello->protocol = STORE_PROTOCOL;
    hello->has_secret = link->auth != NULL;
    if (getrandom(hello->nonce, sizeof(hello->nonce), 0) != (ssize_t)sizeof(hello->nonce)) {
        return LNT_ERR_SYSTEM;
    }
    status = lnt_store_link_write(link->fd, hello, sizeof(*hello), deadline_ns);
    if (status == LNT_OK) {
        status = lnt_store_link_read(link->fd, &reply, sizeof(reply), deadline_ns);
    }
    if (status < 0) {
        return status;
    }
    if (!proof_holds(link, base_key, "server", hello, reply.nonce, reply.proof)) {
        return LNT_ERR_AUTH;
    }
    make_proof(link, base_key, "client", hello, reply.nonce, proof);
    make_proof(link, base_key, "session", hello, reply.nonce, link->key);
    return lnt_store_link_write(link->fd, proof, sizeof(proof), deadline_ns);
}

lnt_status_t lnt_store_link_handshake_server(lnt_store_link_t *link, const uint8_t *base_key, lnt_hello_t *hello, uint64_t deadline_ns)
{
    server_reply_t reply;
    uint8_t proof[LNT_AUTH_BYTES];
    lnt_status_t status = lnt_store_link_read(link->fd, hello, sizeof(*hello), deadline_ns);

    if (status < 0) {
        return status;
    }
    if (hello->magic != STORE_MAGIC || hello->protocol != STORE_PROTOCOL) {
        return LNT_ERR_CORRUPT;
    }
    if ((hello->has_secret != 0) != (link->auth != NULL)) {
        return LNT_ERR_AUTH;
    }
    if (getrandom(reply.nonce, sizeof(reply.nonce), 0) != (ssize_t)sizeof(reply.nonce)) {
        return LNT_ERR_SYSTEM;
    }
    make_proof(link, base_key, "server", hello, reply.nonce, reply.proof);
    make_proof(link, base_key, "session", hello, reply.nonce, link->key);
    status = lnt_store_link_write(link->fd, &reply, sizeof(reply), deadline_ns);
    if (status == LNT_OK) {
        status = lnt_store_link_read(link->fd, proof, sizeof(proof), deadline_ns);
    }
    if (status == LNT_OK && !proof_holds(link, base_key, "client", hello, reply.nonce, proof)) {
        status = LNT_ERR_AUTH;
    }
    return status;
}
